"""The ways between the hosts, cut and made bad by nft inside of each host's namespace, which counts what it drops.

Only what comes from another host is touched: clients reach every host at all times, as in Jepsen.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping

from jepsen.hosts.api import Hosts

Link = tuple[str, str]
"""From one host to another; the way back is another link."""

TABLE = "jepsen"
"""Of nft, family inet."""


class Network:
    """``drop`` maps links to the share of packets lost on them, in percent."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._drop: dict[str, dict[Link, int]] = {}
        """By who asked for it."""
        self._before: dict[str, Counter[Link]] = {}
        """By who asked for it: what was lost under rules that were replaced since."""
        self._changing = asyncio.Lock()
        """Rules are counted and replaced by one fault at a time: else the older ones may be made last."""
        self._addresses: dict[str, str] = {}
        """Of all that ever took part: who is a member no more stays cut off until that is healed."""

    async def drop(self, owner: str, links: Mapping[Link, int]) -> None:
        """Loses so many percent of what travels on these links, beside what other owners asked for."""
        async with self._changing:
            touched = self._touched(owner) | {receiver for _, receiver in links}
            await self._keep_counts(touched)
            self._drop[owner] = dict(links)
            self._before[owner] = Counter()
            await self._apply(touched)

    async def cut(self, owner: str, links: Iterable[Link]) -> None:
        """Nothing arrives on these links any more."""
        await self.drop(owner, dict.fromkeys(links, 100))

    async def heal(self, owner: str) -> dict[Link, int]:
        """Takes back what the owner asked for; how many packets each of its links lost."""
        async with self._changing:
            touched = self._touched(owner)
            await self._keep_counts(touched)
            links, lost = self._drop.pop(owner, {}), self._before.pop(owner, Counter())
            await self._apply(touched)
        return {link: lost[link] for link in links}

    async def _keep_counts(self, receivers: set[str]) -> None:
        """Before these hosts' rules are replaced, whose counters go with them: each rule's count to who asked for it.

        Of two who ask for one link, who asks for more has the rule, and both of them are right when they ask alike."""
        ruled = [receiver for receiver in sorted(receivers) if self._percents(receiver)]
        for counters in await asyncio.gather(*(self._counters(receiver) for receiver in ruled)):
            for link, packets in counters.items():
                highest = self._percents(link[1])[link]
                for owner, links in self._drop.items():
                    if links.get(link) == highest:
                        self._before[owner][link] += packets

    def _percents(self, receiver: str) -> dict[Link, int]:
        """What is to be lost on the ways to this host, of all that was asked for."""
        percents: dict[Link, int] = {}
        for links in self._drop.values():
            for link, percent in links.items():
                if link[1] == receiver:
                    percents[link] = max(percent, percents.get(link, 0))
        return percents

    def _touched(self, owner: str) -> set[str]:
        return {receiver for _, receiver in self._drop.get(owner, {})}

    async def _apply(self, receivers: set[str]) -> None:
        await asyncio.gather(*(self._apply_to(receiver) for receiver in receivers))

    async def _apply_to(self, receiver: str) -> None:
        """Replaces the host's rules in one transaction."""
        self._addresses |= {host.name: host.address for host in self._hosts.all}
        lost = self._percents(receiver)
        commands = [f"add table inet {TABLE}", f"delete table inet {TABLE}"]
        if lost:
            chain = f"inet {TABLE} arriving"
            hook = "{ type filter hook input priority -10; policy accept; }"
            commands += [f"add table inet {TABLE}", f"add chain {chain} {hook}"]
        for (sender, _), percent in lost.items():
            match = f"ip saddr {self._addresses[sender]} {_chance(percent)}"
            commands.append(f'add rule {chain} {match} counter drop comment "{sender}"')
        await self._hosts.run(receiver, "nft", "; ".join(commands))

    async def _counters(self, receiver: str) -> dict[Link, int]:
        listed = json.loads(await self._hosts.run(receiver, "nft", "-j", "list", "table", "inet", TABLE))
        found: dict[Link, int] = {}
        for item in listed["nftables"]:
            rule = item.get("rule")
            if rule is not None:
                counters = [each["counter"]["packets"] for each in rule["expr"] if "counter" in each]
                found[rule["comment"], receiver] = sum(counters)
        return found


def _chance(percent: int) -> str:
    return "" if percent >= 100 else f"numgen random mod 100 < {percent}"


def both_ways(pairs: Iterable[tuple[str, str]]) -> set[Link]:
    """The links of each pair in both directions."""
    return {link for one, other in pairs for link in ((one, other), (other, one))}
