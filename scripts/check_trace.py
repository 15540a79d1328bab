"""Checks a trace file with the schema of the package `perfetto`: run by scripts/perfetto."""

import sys
from collections import defaultdict

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema


def fail(words):
    print("WRONG:", words)
    sys.exit(1)


trace = schema.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

Event = schema.TrackEvent
tracks, names, events = {}, {}, []
begins, ends = {}, {}
for number, packet in enumerate(trace.packet):
    for part in (packet, packet.track_event, packet.track_descriptor, packet.interned_data):
        if len(UnknownFieldSet(part)):
            fail(f"packet {number} has fields that the schema does not know")
    if packet.sequence_flags & 1:
        names = {}
    elif number == 0:
        fail("the first packet does not clear the state")
    for entry in packet.interned_data.event_names:
        names[entry.iid] = entry.name
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        name = track.name or track.thread.thread_name or track.process.process_name
        if track.HasField("parent_uuid") and track.parent_uuid not in tracks:
            fail(f"the track {name} has no parent")
        tracks[track.uuid] = (name, track.parent_uuid, track)
    if packet.HasField("track_event"):
        event = packet.track_event
        if event.track_uuid not in tracks:
            fail("an event has no track")
        name = names.get(event.name_iid, "")
        events.append((packet.timestamp, number, event, name))
        for ids, kept in ((event.flow_ids, begins), (event.terminating_flow_ids, ends)):
            for flow in ids:
                if flow in kept:
                    fail(f"the arrow {flow} forks")
                kept[flow] = (packet.timestamp, event.track_uuid, name)

if set(begins) != set(ends):
    fail("arrows with one end")
for flow, (at, _, _) in begins.items():
    if at > ends[flow][0]:
        fail(f"the arrow {flow} goes back in time")

open_slices, slices, counters = defaultdict(list), defaultdict(list), defaultdict(int)
for at, _, event, name in sorted(events, key=lambda one: (one[0], one[1])):
    track = event.track_uuid
    if event.type == Event.TYPE_SLICE_BEGIN:
        open_slices[track].append((name, at))
    elif event.type == Event.TYPE_SLICE_END:
        if not open_slices[track]:
            fail(f"a slice of {tracks[track][0]} ends that has not begun")
        began, since = open_slices[track].pop()
        slices[track].append((began, since, at))
    elif event.type == Event.TYPE_COUNTER:
        counters[track] += 1
if any(open_slices.values()):
    fail("slices are left open")


def path(track):
    names = []
    while track in tracks:
        name, parent, _ = tracks[track]
        names.append(name)
        track = parent
    return names[::-1]


threads = [uuid for uuid, (_, _, track) in tracks.items() if track.HasField("thread")]
rows = [uuid for uuid in tracks if path(uuid)[1:2] == ["jobs"] and len(path(uuid)) > 2]
if not threads or not any(slices[uuid] for uuid in threads):
    fail("no thread has taken a turn")
if not rows or not all(slices[uuid] for uuid in rows):
    fail("a row has no job")
for uuid in rows:
    parent = tracks[uuid][1]
    if parent not in rows:
        continue
    for name, since, until in slices[uuid]:
        if not any(a <= since and until <= b for _, a, b in slices[parent]):
            fail(f"{name} is not inside a job of the row above it")
if not counters:
    fail("no counters")
deepest = max(rows, key=lambda uuid: len(path(uuid)))
print(f"{len(trace.packet)} packets, {len(threads)} threads, {len(rows)} rows of jobs,")
print(f"{sum(map(len, slices.values()))} slices that nest, {len(begins)} arrows with two ends")
print("the deepest row:", " / ".join(path(deepest)))
