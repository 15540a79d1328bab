// Opens a trace file in Perfetto's page and takes a picture: run by scripts/picture.
// node picture.js FOLDER_OF_THE_PAGE TRACE PICTURE

const { chromium } = require("playwright-core");
const fs = require("fs");
const http = require("http");
const path = require("path");

const [web, trace, picture] = process.argv.slice(2);
const types = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
};

const server = http.createServer((request, response) => {
    const wanted = request.url.split("?")[0];
    const file = wanted === "/trace" ? trace : path.join(web, wanted === "/" ? "index.html" : wanted);
    fs.readFile(file, (error, bytes) => {
        const type = types[path.extname(file)] ?? "application/octet-stream";
        response.writeHead(error ? 404 : 200, { "content-type": type });
        response.end(bytes);
    });
});

// Runs in the page: opens all rows, and shows all arrows. Perfetto shows those of a selection,
// so everything is selected for a moment.
async function showAll() {
    const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
    const trace = window.ctx;
    window.app.sidebar.toggleVisibility();
    const rows = trace.currentWorkspace ?? trace.workspace;
    // A row that opens has rows in it.
    for (let deep = 0; deep < 5; deep++) rows.flatTracks.forEach((row) => row.expand());
    const { start, end } = trace.traceInfo;
    const trackUris = rows.flatTracks.map((row) => row.uri).filter((uri) => uri);
    trace.selection.selectArea({ start, end, trackUris });
    while (trace.flows.selectedFlows.length === 0) await pause(100);
    const arrows = [...trace.flows.selectedFlows];
    trace.selection.clearSelection();
    await pause(500);
    trace.flows.setConnectedFlows(arrows);
    // The drawer below the timeline: collapsed.
    trace.tabs.setTabPanelVisibility(2);
    window.app.raf.scheduleFullRedraw();
    await pause(1500);
    return arrows.length;
}

async function main() {
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const base = `http://127.0.0.1:${server.address().port}`;
    const browser = await chromium.launch({
        executablePath: "/usr/bin/chromium",
        args: "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split(" "),
    });
    const page = await browser.newPage({ viewport: { width: 1400, height: 860 } });
    await page.goto(`${base}/#!/?url=${encodeURIComponent(`${base}/trace`)}`);
    await page.waitForFunction(() => window.ctx && !window.app.isLoadingTrace, null, { timeout: 60000 });
    await page.waitForTimeout(3000);
    console.log(`${await page.evaluate(showAll)} arrows`);
    // Without the page's own head and foot.
    await page.screenshot({ path: picture, clip: { x: 0, y: 116, width: 1400, height: 648 } });
    await browser.close();
    server.close();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
