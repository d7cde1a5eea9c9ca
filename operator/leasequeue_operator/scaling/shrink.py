"""How a fleet gets smaller without ending work: cordon → drained → deletion cost → lower the number.

    1. cordon the idlest workers, for 60 s at most, again at each look: the cordons of a dead operator lapse by themselves;
    2. wait until they hold no lease, or until their drain limit has passed;
    3. with the cordon asserted again and no lease found after that, give exactly those pods the lowest deletion cost;
    4. 2 s later at least, when the ReplicaSet controller has seen the cost, lower the number by as many as are drained.

Not promised: a pod that is killed by others (eviction, `kubectl delete`, a node that fails) ends as a pod ends, with the
worker's own drain. A worker that is still busy at its limit is cut off, and that is counted.

The ReplicaSet removes pods that are not ready before it looks at the cost, so those are chosen first. To zero needs no
choice. If more pods are wanted again, cordons are lifted before any pod is started. Pure: `choose` before the cordon is set,
`settle` with what the database showed after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

CORDON_S = 60.0
COST_SEEN_S = 2.0
# A pod that was given up goes within this time; one that is there after it is taken back into service.
LEAVING_S = 30.0
ROLLOUT_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A worker pod that is not on its way out.

    Args:
        uid: its uid.
        name: its name.
        created: creation time as text; later ones sort later.
        ready: whether it is ready.
        priced: whether it carries our deletion cost.
        leases: items its processes hold; None when none of them has registered.
        cordoned: whether nothing in it can claim.
    """

    uid: str
    name: str
    created: str = ""
    ready: bool = True
    priced: bool = False
    leases: int | None = None
    cordoned: bool = False

    @property
    def busy(self) -> bool:
        """Whether it holds a lease."""
        return bool(self.leases)


@dataclass(frozen=True, slots=True)
class Shrink:
    """Memory of a decrease under way. All of it can be lost: the decrease begins anew, and kills nothing for that.

    Args:
        victims: (pod uid, since when it is cordoned).
        priced: (pod uid, since when it has its cost).
        leaving: (pod uid, since when the number is low enough for it to go).
        rollout_since: since when a rollout is waited for; None when none is.
        blind_since: since when the database has not answered; None while it does.
    """

    victims: tuple[tuple[str, float], ...] = ()
    priced: tuple[tuple[str, float], ...] = ()
    leaving: tuple[tuple[str, float], ...] = ()
    rollout_since: float | None = None
    blind_since: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether a decrease is not done yet."""
        return bool(self.victims) or self.rollout_since is not None or self.blind_since is not None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The pods now.

    Args:
        current: pods the Deployment asks for.
        pods: worker pods, those on their way out excepted.
        rollout: whether the Deployment replaces pods.
        existing: pods that the Deployment counts; more than `pods` says that the watch has yet to show some.
        limit_s: how long a cordoned worker may go on with what it holds, seconds.
    """

    current: int
    pods: Sequence[Pod]
    rollout: bool = False
    existing: int = 0
    limit_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Choice:
    """Pods to be cordoned now, and those whose cordon is to be lifted."""

    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    state: Shrink = field(default_factory=Shrink)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now.

    Args:
        replicas: pods the Deployment is to ask for.
        price: pods that get the lowest deletion cost.
        unprice: pods whose deletion cost is to go.
        cut_off: leases that end with this step because their worker's limit has passed.
        state: memory for the next step.
    """

    replicas: int
    price: tuple[str, ...] = ()
    unprice: tuple[str, ...] = ()
    cut_off: int = 0
    state: Shrink = field(default_factory=Shrink)


def choose(state: Shrink, fleet: Fleet, target: int, now: float) -> Choice:
    """Which pods to cordon on the way to `target`.

    Args:
        state: memory of the decrease.
        fleet: the pods, with the leases seen before this step.
        target: pods that are wanted.
        now: seconds since 1970 UTC.
    """
    leaving = _lately(state.leaving, fleet, now)
    staying = [p for p in fleet.pods if p.uid not in leaving]
    waits = _waits_for_rollout(state, fleet, target, now)
    count = 0 if waits or target >= fleet.current else max(0, len(staying) - target)
    since = dict(state.victims)
    chosen = sorted(staying, key=lambda p: (p.ready, p.leases or 0, p.uid not in since, _newest_first(p), p.uid))[:count]
    uids = {p.uid for p in chosen}
    lifted = tuple(p.uid for p in staying if p.uid not in uids and (p.cordoned or p.uid in since))
    return Choice(
        cordon=tuple(p.uid for p in chosen),
        uncordon=lifted,
        state=Shrink(
            victims=tuple((p.uid, since.get(p.uid, now)) for p in chosen),
            priced=tuple((uid, at) for uid, at in state.priced if uid in uids),
            leaving=tuple(leaving.items()),
            rollout_since=(state.rollout_since or now) if fleet.rollout and 0 < target < fleet.current else None,
        ),
    )


def settle(state: Shrink, fleet: Fleet, target: int, now: float) -> Step:
    """What follows from the leases that were found after the cordon was set.

    Args:
        state: as `choose` left it.
        fleet: the pods, with the leases seen after the cordon was set.
        target: pods that are wanted.
        now: seconds since 1970 UTC.
    """
    leaving = dict(state.leaving)
    staying = [p for p in fleet.pods if p.uid not in leaving]
    if target >= fleet.current:
        return Step(target, unprice=tuple(p.uid for p in staying if p.priced), state=Shrink(leaving=state.leaving))
    if _waits_for_rollout(state, fleet, target, now):
        return Step(fleet.current, unprice=tuple(p.uid for p in staying if p.priced), state=state)
    if fleet.existing > len(fleet.pods):
        return Step(fleet.current, state=state)
    if len(staying) <= target:
        # Fewer pods than are asked for (a quota, pods killed by others): nobody has to go.
        return Step(target, state=Shrink(leaving=state.leaving))
    free = _free(state, staying, fleet.limit_s, now)
    if target == 0:
        return _to_zero(state, fleet, staying, free, now)
    return _lower(state, fleet, staying, free, target, now)


def blind(state: Shrink, fleet: Fleet, target: int, now: float) -> Step:
    """What to do while the database does not say who holds what: wait, up to the drain limit."""
    if target >= fleet.current:
        return Step(target, state=Shrink(leaving=state.leaving))
    since = state.blind_since if state.blind_since is not None else now
    if now - since >= fleet.limit_s:
        return Step(target, cut_off=sum(p.leases or 0 for p in fleet.pods))
    return Step(fleet.current, state=Shrink(state.victims, (), state.leaving, state.rollout_since, since))


def _to_zero(state: Shrink, fleet: Fleet, staying: Sequence[Pod], free: Sequence[Pod], now: float) -> Step:
    if len(free) < len(staying):
        return Step(fleet.current, state=state)
    gone = tuple((p.uid, now) for p in staying)
    return Step(0, cut_off=sum(p.leases or 0 for p in free), state=Shrink(leaving=(*state.leaving, *gone)))


def _lower(state: Shrink, fleet: Fleet, staying: Sequence[Pod], free: Sequence[Pod], target: int, now: float) -> Step:
    uids = {p.uid for p in free}
    unprice = tuple(p.uid for p in staying if p.priced and p.uid not in uids)
    priced = {uid: at for uid, at in state.priced if uid in uids}
    price = tuple(p.uid for p in free if p.uid not in priced)
    going = [p for p in free if p.uid in priced and now - priced[p.uid] >= COST_SEEN_S]
    taken_first = [p for p in staying if not p.ready and p.busy and p not in going]
    if not going or taken_first:
        marked = {**priced, **dict.fromkeys(price, now)}
        return Step(fleet.current, price, unprice, state=_with(state, priced=marked))
    left = {p.uid: now for p in going}
    after = _with(state, priced={**priced, **dict.fromkeys(price, now)}, leaving={**dict(state.leaving), **left})
    replicas = max(target, min(fleet.current, len(staying)) - len(going))
    return Step(replicas, price, unprice, cut_off=sum(p.leases or 0 for p in going), state=after)


def _with(state: Shrink, *, priced: dict[str, float], leaving: dict[str, float] | None = None) -> Shrink:
    gone = set(leaving or ())
    return Shrink(
        tuple(v for v in state.victims if v[0] not in gone),
        tuple((uid, at) for uid, at in priced.items() if uid not in gone),
        state.leaving if leaving is None else tuple(leaving.items()),
        state.rollout_since,
    )


def _free(state: Shrink, staying: Sequence[Pod], limit_s: float, now: float) -> list[Pod]:
    """Victims that may go: cordoned and without a lease, or past their limit."""
    since = dict(state.victims)
    return [
        p for p in staying
        if p.uid in since and ((p.cordoned and not p.busy) or now - since[p.uid] >= limit_s)
    ]  # fmt: skip


def _waits_for_rollout(state: Shrink, fleet: Fleet, target: int, now: float) -> bool:
    """During a rollout two ReplicaSets share the fleet, and costs say nothing about which of them shrinks."""
    if not fleet.rollout or target == 0 or target >= fleet.current:
        return False
    return state.rollout_since is None or now - state.rollout_since < ROLLOUT_WAIT_S


def _lately(leaving: tuple[tuple[str, float], ...], fleet: Fleet, now: float) -> dict[str, float]:
    there = {p.uid for p in fleet.pods}
    return {uid: at for uid, at in leaving if uid in there and now - at < LEAVING_S}


def _newest_first(pod: Pod) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in pod.created)
