import socket

import pytest

from lakemark.sandbox import loopback


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind((loopback.HOST, 0))
        server.listen()
        yield server


def port_of(server):
    return server.getsockname()[1]


def test_ports_are_free_with_their_grpc_ports_and_keep_off_others(listener):
    assert not loopback.is_free(port_of(listener))
    first = loopback.free_ports(5)
    second = loopback.free_ports(5, avoid=first)
    everything = [port + offset for port in first + second for offset in (0, loopback.GRPC_OFFSET)]
    assert len(set(everything)) == 20
    assert all(loopback.is_free(port) for port in everything)
    assert max(everything) < 32768


def test_a_port_whose_grpc_port_is_taken_is_not_given():
    one, two, *_ = sorted(port for port in loopback.free_ports(200) if 13000 <= port < 20000)
    others = set(range(10000, 23000)) - {one, two}
    assert sorted(loopback.free_ports(2, avoid=others)) == [one, two]
    with socket.socket() as server:
        server.bind((loopback.HOST, one + loopback.GRPC_OFFSET))
        server.listen()
        assert loopback.free_ports(1, avoid=others) == [two]
        with pytest.raises(OSError, match="no 2 free ports"):
            loopback.free_ports(2, avoid=others)


def test_a_server_on_every_address_has_the_port_too():
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        assert not loopback.is_free(port_of(server))


def test_a_silent_server_is_an_answer_not_an_error(listener):
    assert loopback.Origin(port_of(listener), timeout_seconds=0.05).ask("GET", "/").status == 0
    (port,) = loopback.free_ports(1)
    assert not loopback.Origin(port).ask("GET", "/").ok


def test_a_password_is_not_shown():
    assert "hidden" not in repr(loopback.Origin(1, "user", "hidden"))
