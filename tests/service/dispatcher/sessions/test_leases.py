"""Heartbeat deadlines of workers and clients."""

from stoker.service.dispatcher.sessions.leases import Leases


def test_lease_expires_without_messages():
    leases = Leases(now=0.0, stall=5.0)
    leases.grant(1, 10.0, now=0.0)
    assert [leases.expired(now) for now in (4.0, 8.0, 10.0, 10.5)] == [[], [], [], [1]]


def test_every_message_renews_a_lease():
    leases = Leases(now=0.0, stall=5.0)
    leases.grant(1, 10.0, now=0.0)
    leases.expired(5.0)
    leases.renew(1, now=8.0)
    assert [leases.expired(now) for now in (10.0, 14.0, 18.0, 18.5)] == [[], [], [], [1]]


def test_each_holder_has_its_own_lease_length():
    leases = Leases(now=0.0, stall=100.0)
    leases.grant(1, 1.0, now=0.0)
    leases.grant(2, 3.0, now=0.0)
    assert leases.expired(2.0) == [1]


def test_unknown_holder_is_not_renewed():
    leases = Leases(now=0.0, stall=100.0)
    leases.renew(7, now=0.0)
    assert leases.expired(50.0) == []


def test_dropped_holder_does_not_expire():
    leases = Leases(now=0.0, stall=100.0)
    leases.grant(1, 1.0, now=0.0)
    leases.drop(1)
    leases.drop(1)
    assert leases.expired(50.0) == []


def test_stall_of_the_dispatcher_renews_every_lease():
    leases = Leases(now=0.0, stall=5.0)
    leases.grant(1, 10.0, now=0.0)
    assert leases.expired(60.0) == []
    assert leases.expired(64.0) == []
    assert leases.expired(68.0) == []
    assert leases.expired(70.5) == [1]


def test_first_renewal_after_a_pause_renews_all():
    leases = Leases(now=0.0, stall=100.0)
    leases.grant(1, 10.0, now=0.0)
    leases.grant(2, 20.0, now=1.0)
    assert leases.idle_seconds(9.0) == 8.0
    leases.paused = True
    assert leases.expired(50.0) == []
    leases.renew(7, now=50.0)  # no holder
    assert leases.paused
    leases.renew(1, now=60.0)
    assert not leases.paused
    assert [leases.expired(now) for now in (70.0, 71.0, 81.0)] == [[], [1], [1, 2]]
