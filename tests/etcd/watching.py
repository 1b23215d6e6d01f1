"""One stream of watches, and what each watch on it has been told.

How events are cut into answers depends on the moment, so a watch's transcript is the events one by one. What every cut
must keep is asserted here: revisions grow, and none is split over two answers but those of a fragmented one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import text_format

from tests.etcd.stubs import kv, rpc

ANSWER_S = 10
"""A server that takes longer is said to be silent."""
SENTINEL = rpc.WatchCreateRequest(key=b"never written", watch_id=9_999)
"""A stream without a watch gets no progress."""


class Broken(AssertionError):
    """A server breaks a guarantee of watches, whatever the other one says."""


class Watching:
    def __init__(self, channel: grpc.Channel, common: Callable[[kv.Event], kv.Event]) -> None:
        """``common`` gives an event without what is the server's own."""
        self._common = common
        self._requests: queue.Queue[rpc.WatchRequest | None] = queue.Queue()
        method: Any = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=rpc.WatchRequest.SerializeToString,
            response_deserializer=rpc.WatchResponse.FromString,
        )
        self._call = method(iter(self._requests.get, None))
        self._heard = threading.Condition()
        self._transcripts: dict[int, list[str]] = defaultdict(list)
        self._seen: dict[int, int] = {}
        """The revision of the last event, by watch."""
        self._split: set[int] = set()
        """Watches whose last answer goes on in the next one."""
        self._creations = 0
        self._progress = 0
        self._compacted: set[int] = set()
        """Watches that the server has cancelled as compacted. etcd keeps them, and gives their stream no progress,
        until their client cancels them too."""
        self._failure: Exception | None = None
        self.active: set[int] = set()
        threading.Thread(target=self._listen, daemon=True).start()
        self.create(SENTINEL)

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()

    # What is asked -----------------------------------------------------------------------------------------------

    def create(self, request: rpc.WatchCreateRequest) -> None:
        """Returns when it is answered."""
        expected = self._creations + 1
        self._requests.put(rpc.WatchRequest(create_request=request))
        self._until(lambda: self._creations >= expected, "no answer to a watch's creation")
        self._progress = 0  # it was that of the others

    def cancel(self, watch_id: int) -> None:
        """Returns when it is answered: a watch that is unknown never is."""
        known = watch_id in self.active
        self._send_cancel(watch_id)
        if known:
            self._until(lambda: watch_id not in self.active, f"no answer to the cancelling of watch {watch_id}")

    def _send_cancel(self, watch_id: int) -> None:
        self._requests.put(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=watch_id)))

    def catch_up(self, revision: int) -> None:
        """Returns when every watch has been told of everything up to there."""
        deadline_s = time.monotonic() + ANSWER_S
        while self._progress < revision:
            with self._heard:
                compacted, self._compacted = self._compacted, set()
            for watch_id in compacted:
                self._send_cancel(watch_id)
            self._requests.put(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
            with self._heard:
                self._heard.wait_for(lambda: self._failure or self._progress >= revision, 0.05)
            self._check()
            if time.monotonic() > deadline_s:
                raise Broken(f"no progress up to revision {revision} within {ANSWER_S} s, but {self._progress}")

    def transcripts(self) -> dict[int, list[str]]:
        with self._heard:
            return {watch: list(lines) for watch, lines in self._transcripts.items()}

    def wait_for_more(self, seconds: float) -> None:
        with self._heard:
            self._heard.wait(seconds)
        self._check()

    def _until(self, condition: Any, what: str) -> None:
        with self._heard:
            reached = self._heard.wait_for(lambda: self._failure or condition(), ANSWER_S)
        self._check()
        if not reached:
            raise Broken(what)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # What is heard -----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for response in self._call:
                with self._heard:
                    self._take(response)
                    self._heard.notify_all()
        except (grpc.RpcError, Broken) as failure:
            with self._heard:
                self._failure = failure
                self._heard.notify_all()

    def _take(self, response: rpc.WatchResponse) -> None:
        watch, revision = response.watch_id, response.header.revision
        lines = self._transcripts[watch]
        if response.created:
            self._creations += 1
            if not response.canceled:
                self.active.add(watch)
                self._compacted.discard(watch)
                self._seen.pop(watch, None)
            lines.append(f"created at {revision} {'canceled ' if response.canceled else ''}{response.cancel_reason}")
        elif response.canceled:
            if watch not in self.active:
                return  # etcd's word on one that it has cancelled itself
            self.active.discard(watch)
            if response.compact_revision:
                self._compacted.add(watch)
            lines.append(f"canceled, compacted {response.compact_revision} {response.cancel_reason}")
        elif response.events:
            self._take_events(watch, response)
        elif watch == -1:
            self._progress = max(self._progress, revision)
            if late := [each for each in self.active if self._seen.get(each, 0) > revision]:
                raise Broken(f"progress says {revision} behind later events of the watches {late}")
        else:
            raise Broken(f"watch {watch}: an answer that says nothing: {response}")

    def _take_events(self, watch: int, response: rpc.WatchResponse) -> None:
        if watch not in self.active:
            raise Broken(f"watch {watch} is told of events, but is none: {response}")
        first, last = response.events[0].kv.mod_revision, response.events[-1].kv.mod_revision
        seen = self._seen.get(watch, 0)
        if first < seen or (first == seen and watch not in self._split):
            raise Broken(f"watch {watch} is told of revision {first} behind {seen}")
        revisions = [event.kv.mod_revision for event in response.events]
        if revisions != sorted(revisions):
            raise Broken(f"watch {watch}: events out of order: {response}")
        if response.header.revision < last:
            raise Broken(f"watch {watch}: an event of {last} in an answer of {response.header.revision}")
        self._seen[watch] = last
        (self._split.add if response.fragment else self._split.discard)(watch)
        lines = [text_format.MessageToString(self._common(event), as_one_line=True) for event in response.events]
        self._transcripts[watch] += lines
