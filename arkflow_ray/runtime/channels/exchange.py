"""All channels of one chain in one generation: the face of this package (H1-H9, E6).

    exchange = Exchange(job, plan, generation, inbox, folder=..., node_ip=...)
    address = exchange.listen(secret)          # tell it to the chains that send to this one
    exchange.connect(addresses, secret)        # once they all listen
    exchange.send(channel, envelope)           # with credit only: the machine of the chain has it
    exchange.grant(channel, taken_upto, settled_upto)
    exchange.close(flush=True, timeout_s=5)

Between two chains there is one connection, whatever the number of their channels; the chain that
sends data connects. Nothing here decides: credit is the chain's machine's, and a broken connection
is told once and never mended (H9).
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from socket import socket
from typing import Final

from arkflow_kernel.envelope import Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, ChannelId, Generation, JobId, Sequence
from arkflow_kernel.plan import ChainPlan, ChannelPlan
from arkflow_ray.runtime.channels.addresses import Address, dial, listen_tcp, listen_unix
from arkflow_ray.runtime.channels.counters import Counters, ExchangeStatistics
from arkflow_ray.runtime.channels.dialing import connect_all
from arkflow_ray.runtime.channels.ends import ReceivingEnd, SendingEnd
from arkflow_ray.runtime.channels.handshake import Pair, checked_secret
from arkflow_ray.runtime.channels.reception import Reception
from arkflow_ray.runtime.channels.traffic import Inbox, Traffic
from arkflow_ray.runtime.channels.tunnel import Tunnel
from arkflow_ray.runtime.channels.tunnel_ends import TunnelCalls

CONNECT_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 5.0
_BREAK_TIMEOUT_S: Final = 0.5
"""How long a tunnel may take at least to tell the others that this side has gone."""


class Exchange:
    """The channels of a chain. Makes no socket and no thread before `listen` or `connect`.

    `folder`: private folder of the job for Unix sockets, made if missing; its path is short.
    `node_ip`: this node's own address. `tcp`: listen there too, for chains of other nodes, at
    the first free port of `ports` (Ray's worker ports, if they are configured). `tunnel`: how this
    chain and those of other nodes reach each other instead (H6); the exchange closes it.
    """

    def __init__(
        self,
        job: JobId,
        plan: ChainPlan,
        generation: Generation,
        inbox: Inbox,
        *,
        folder: str,
        node_ip: str,
        tcp: bool = False,
        ports: range | None = None,
        tunnel: Tunnel | None = None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._generation = generation
        self._inbox = inbox
        self._folder = folder
        self._node_ip = node_ip
        self._tcp = tcp
        self._ports = ports
        self._tunnel = tunnel
        self._inputs = _by_chain((channel.source, channel) for channel in plan.inputs)
        self._outputs = _by_chain((channel.target, channel) for channel in plan.channels)
        self._counters = Counters()
        self._secret: bytes | None = None
        self._traffic: Traffic | None = None
        self._outgoing: dict[ChannelId, tuple[SendingEnd, int]] = {}
        self._incoming: dict[ChannelId, tuple[ReceivingEnd, int]] = {}
        self._closed = False
        self._changing = threading.Lock()

    def listen(self, secret: bytes) -> Address:
        """Let the sources of this chain in from now on; where, they must be told (H1).

        A chain without inputs opens nothing; its address has no way in. `ChannelError` if the
        sockets cannot be made, or a path is too long.
        """
        self._secret = checked_secret(secret)
        if not self._inputs:
            return Address(self._plan.chain, self._node_ip)
        if self._closed:
            raise ChannelError(f"chain '{self._plan.chain}' was closed before it listened")
        sock, path = listen_unix(self._folder)
        tcp: tuple[socket, int] | None = None
        if self._tcp:
            try:
                tcp = listen_tcp(self._node_ip, self._ports)
            except BaseException:
                sock.close()
                os.unlink(path)
                raise
        traffic = self._started_traffic()
        identity = (self._job, self._generation, self._plan.chain)
        reception = Reception(
            traffic.thread, self._counters, secret, identity, self._inputs, self._admit
        )
        listeners: list[tuple[socket, str | None]] = [(sock, path)]
        if tcp is not None:
            listeners.append((tcp[0], None))
        traffic.order(partial(_open, traffic, reception, listeners))
        if self._tunnel is not None:
            self._tunnel.lead_to(path)
        return Address(self._plan.chain, self._node_ip, path, None if tcp is None else tcp[1])

    def connect(
        self,
        peers: Mapping[ChainId, Address],
        secret: bytes | None = None,
        *,
        calls: Mapping[ChainId, TunnelCalls] | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect to every chain that this one sends to, and prove who it is (H2). Blocks.

        `secret`: that of `listen` if not given. `calls`: how to call the chains that are reached
        through the tunnel. `ChannelError` names the first chain that could
        not be reached or refused.
        """
        secret = self._secret if secret is None else checked_secret(secret)
        if secret is None:
            raise ChannelError(f"chain '{self._plan.chain}' was not told the secret to connect")
        missing = [chain for chain in self._outputs if chain not in peers]
        if missing:
            raise ChannelError(
                f"chain '{self._plan.chain}' was not told the address of chain '{missing[0]}'"
            )
        if not self._outputs:
            return
        addresses = {self._pair(chain): peers[chain] for chain in self._outputs}
        sockets = connect_all(addresses, secret, partial(self._dial, calls or {}), timeout_s)
        with self._changing:
            if not self._closed:
                self._adopt(sockets)
                return
        for sock in sockets.values():
            sock.close()
        raise ChannelError(f"chain '{self._plan.chain}' was closed while it connected")

    def send(self, channel: ChannelId, envelope: Envelope) -> None:
        """Send an envelope for which there is credit. Any thread; never blocks; keeps order.

        After a break or `close` it does nothing: `Inbox.broken` has told. `ChannelError` if the
        channel does not leave this chain or is not connected.
        """
        try:
            connection, number = self._outgoing[channel]
        except KeyError:
            raise ChannelError(f"channel {channel} is not connected by this chain") from None
        assert self._traffic is not None
        self._traffic.post((connection, number, envelope))

    def grant(self, channel: ChannelId, taken_upto: Sequence, settled_upto: Sequence) -> None:
        """Tell the source of a channel what was taken and settled. Any thread; the newest wins.

        `ChannelError` if the channel does not enter this chain or nothing has come on it yet.
        """
        try:
            connection, number = self._incoming[channel]
        except KeyError:
            raise ChannelError(f"channel {channel} brings nothing to this chain") from None
        assert self._traffic is not None
        self._traffic.post((connection, number, (taken_upto, settled_upto)))

    def close(self, *, flush: bool, timeout_s: float) -> None:
        """End every connection, the thread and the listeners. Not from the I/O thread.

        `flush`: what was given before goes out, then Bye, and the peers' Byes are waited for, all
        within `timeout_s`; `ChannelError` if an envelope could not go out. Without it the peers
        see broken connections. Either way nothing is left open.
        """
        give_up_s = time.monotonic() + timeout_s
        with self._changing:
            traffic = self._traffic
            was_closed, self._closed = self._closed, True
        if was_closed:
            return
        try:
            if traffic is not None:
                self._close_traffic(traffic, flush=flush, timeout_s=timeout_s)
        finally:
            if self._tunnel is not None:
                # Who breaks off waits for nobody: the others hear of it, or of nothing (H9).
                left_s = give_up_s - time.monotonic() if flush else _BREAK_TIMEOUT_S
                self._tunnel.close(max(left_s, _BREAK_TIMEOUT_S))

    def _close_traffic(self, traffic: Traffic, *, flush: bool, timeout_s: float) -> None:
        traffic.order(traffic.say_bye if flush else traffic.stop)
        if not traffic.thread.join(timeout_s):
            traffic.order(traffic.stop)
            if not traffic.thread.join(_STOP_TIMEOUT_S):
                raise ChannelError("the I/O thread of the channels does not end")
        traffic.thread.close()
        if flush and traffic.unsent:
            raise traffic.unsent[0]

    @property
    def hung(self) -> bool:
        """After `close`: its thread did not end, and never will."""
        alive = self._traffic is not None and self._traffic.thread.alive
        return self._closed and (alive or (self._tunnel is not None and self._tunnel.alive))

    def statistics(self) -> ExchangeStatistics:
        """Figures since it was made."""
        return self._counters.statistics()

    def _started_traffic(self) -> Traffic:
        if self._traffic is None:
            name = f"channels-{self._plan.chain}"
            self._traffic = Traffic(name, self._inbox, self._counters)
            self._traffic.thread.start()
        return self._traffic

    def _dial(
        self, calls: Mapping[ChainId, TunnelCalls], address: Address, timeout_s: float
    ) -> socket:
        peer = calls.get(address.chain)
        if peer is None or self._tunnel is None:
            return dial(address, self._node_ip, timeout_s)
        return self._tunnel.dial(peer)

    def _adopt(self, sockets: Mapping[Pair, socket]) -> None:
        """Connections to targets, ready to send."""
        traffic = self._started_traffic()
        now = time.monotonic()
        for pair, sock in sockets.items():
            plans = self._outputs[pair.target]
            end = SendingEnd(sock, pair, plans, self._counters, traffic.received, now)
            traffic.order(partial(traffic.adopt, end))
            self._outgoing.update({plan.channel: (end, plan.number) for plan in plans})

    def _admit(self, source: ChainId, sock: socket) -> None:
        """A source has proved itself. In the I/O thread."""
        traffic = self._traffic
        assert traffic is not None
        plans = self._inputs[source]
        pair = Pair(self._job, self._generation, source, self._plan.chain)
        now = time.monotonic()
        end = ReceivingEnd(sock, pair, plans, self._counters, traffic.received, now)
        end.tick(now)  # the first ping tells the source that it is in
        self._incoming.update({plan.channel: (end, plan.number) for plan in plans})
        traffic.adopt(end)

    def _pair(self, target: ChainId) -> Pair:
        return Pair(self._job, self._generation, self._plan.chain, target)


def _by_chain(
    channels: Iterable[tuple[ChainId, ChannelPlan]],
) -> dict[ChainId, list[ChannelPlan]]:
    found: dict[ChainId, list[ChannelPlan]] = defaultdict(list)
    for chain, channel in channels:
        found[chain].append(channel)
    return dict(found)


def _open(
    traffic: Traffic, reception: Reception, listeners: list[tuple[socket, str | None]]
) -> None:
    """Start to accept. In the I/O thread."""
    for listener, path in listeners:
        reception.add(listener, path)
    traffic.receive_at(reception)


__all__ = ["CONNECT_TIMEOUT_S", "Exchange"]
