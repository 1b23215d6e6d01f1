"""Alarms: what a member said is wrong, until somebody takes it back. They are state: all nodes refuse alike."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.etcdpb import rpc_pb2 as pb


class Alarms:
    def __init__(self, raised: Iterable[pb.AlarmMember] = ()) -> None:
        self._raised = {(each.alarm, each.memberID) for each in raised}

    def __contains__(self, kind: int) -> bool:
        return any(each == kind for each, _ in self._raised)

    def __bool__(self) -> bool:
        return bool(self._raised)

    def members(self, kind: int = pb.NONE) -> list[pb.AlarmMember]:
        """NONE: alarms of all kinds."""
        return [
            pb.AlarmMember(memberID=member, alarm=each)
            for each, member in sorted(self._raised)
            if kind in (pb.NONE, each)
        ]

    def apply(self, request: pb.AlarmRequest) -> pb.AlarmResponse:
        """Raises, takes back or lists alarms. Done again it changes nothing."""
        answer = pb.AlarmResponse()
        named = (request.alarm, request.memberID)
        if request.action == pb.AlarmRequest.GET:
            answer.alarms.extend(self.members(request.alarm))
        elif request.action == pb.AlarmRequest.ACTIVATE and request.alarm != pb.NONE:
            self._raised.add(named)
            answer.alarms.append(pb.AlarmMember(memberID=request.memberID, alarm=request.alarm))
        elif request.action == pb.AlarmRequest.DEACTIVATE and named in self._raised:
            self._raised.discard(named)
            answer.alarms.append(pb.AlarmMember(memberID=request.memberID, alarm=request.alarm))
        return answer
