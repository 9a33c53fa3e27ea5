"""Which request arrives next: by the trace, and in closed loop when the one it follows is over.

In open loop a pointer into the trace is all there is. In closed loop the arrivals that are known and still to come are
a binary heap of requests in `State.lists`, ordered by (time, request).
"""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import arrival_resource, schedule
from kvsweep.cluster.shared.state import State


def take(s: State) -> int:
    """Return the request whose arrival is due, and schedule the arrival after it."""
    if s.run[col.CLOSED] == 1:
        return _take_pending(s)
    r = s.run[col.ARRIVED]
    s.run[col.ARRIVED] = r + 1
    more = r + 1 < s.request.shape[0]
    schedule(s, arrival_resource(s), s.request[r + 1, col.ARRIVAL] if more else col.NEVER)
    return int(r)


def follow(s: State, r: int) -> None:
    """Have the request after `r` in its session arrive, as `r` has finished or been rejected now.

    To be called where there is one, ``request[r, FOLLOWER] >= 0``.
    """
    later = s.request[r, col.FOLLOWER]
    s.request[later, col.ARRIVAL] = s.run[col.NOW] + s.request[later, col.THINK]
    place, first = s.run[col.N_PENDING], s.run[col.PENDING]
    s.run[col.N_PENDING] += 1
    while place > 0 and _is_earlier(s, later, s.lists[first + (place - 1) // 2]):
        s.lists[first + place] = s.lists[first + (place - 1) // 2]
        place = (place - 1) // 2
    s.lists[first + place] = later
    _schedule_first(s)


def _take_pending(s: State) -> int:
    first, last = s.run[col.PENDING], s.run[col.N_PENDING] - 1
    r, moved = s.lists[first], s.lists[first + last]
    s.run[col.N_PENDING] = last
    place, child = 0, 1
    while child < last:
        if child + 1 < last and _is_earlier(s, s.lists[first + child + 1], s.lists[first + child]):
            child += 1
        if not _is_earlier(s, s.lists[first + child], moved):
            break
        s.lists[first + place] = s.lists[first + child]
        place, child = child, 2 * child + 1
    s.lists[first + place] = moved
    _schedule_first(s)
    s.run[col.ARRIVED] += 1
    if s.run[col.ARRIVED] == s.request.shape[0] and s.run[col.NOW] > 0:
        s.run[col.OCCUPANCY_END] = s.run[col.NOW]
    return int(r)


def _schedule_first(s: State) -> None:
    none = s.run[col.N_PENDING] == 0
    schedule(s, arrival_resource(s), col.NEVER if none else s.request[s.lists[s.run[col.PENDING]], col.ARRIVAL])


def _is_earlier(s: State, r: int, other: int) -> bool:
    time, its = s.request[r, col.ARRIVAL], s.request[other, col.ARRIVAL]
    return bool(time < its or (time == its and r < other))
