import json

import pytest

from odradek.cli.main import main
from odradek.client.reports.capacity import Machine, Workload, plan

MACHINE = Machine(1e9, 0.7, 1 / 3, 0)


def workload(bytes_per_second: float, copies: int, compression: float = 1.0, days: float = 14) -> Workload:
    return Workload(bytes_per_second, copies, days * 86400, compression, 0.1, 0.0, 1.0)


def test_a_hundred_million_records_a_day_in_two_copies_for_two_weeks() -> None:
    found = plan(workload(1e8 * 1000 / 86400, 2), MACHINE)
    assert found.stored_bytes == pytest.approx(3.08e12)
    assert plan(workload(1e8 * 1000 / 86400, 2, 0.75), MACHINE).stored_bytes == pytest.approx(2.31e12)


def test_a_terabyte_an_hour_over_gigabit_links() -> None:
    found = plan(workload(1e12 / 3600, 1), MACHINE)
    assert found.usable_bits_per_second == pytest.approx(233e6, rel=0.01)
    assert found.brokers == 10
    assert plan(workload(1e12 / 3600, 3), MACHINE).brokers == 30


def test_disks_may_ask_for_more_brokers_than_the_network() -> None:
    found = plan(workload(1e6, 3), MACHINE._replace(disk_bytes=1e12))
    assert (found.brokers_for_copies, found.brokers_for_disks, found.brokers) == (3, 4, 4)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    case = ["plan", "--records", "1e8/day", "--record-size", "1KB", "--copies", "2", "--retention", "14days"]
    assert main(case) == 0
    assert "3.08 TB" in capsys.readouterr().out
    assert main([*case, "--compression", "0.75", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stored_bytes"] == pytest.approx(2.31e12)
    assert main(["plan", "--throughput", "1TB/hour", "--copies", "3", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["brokers"] == 30


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--records", "1e8/day", "--throughput", "1TB/hour"],
        ["--records", "many/day"],
        ["--records", "5/week"],
        ["--throughput", "1TB"],
        ["--records", "5/s", "--copies", "0"],
        ["--records", "5/s", "--retention", "for ever"],
        ["--records", "5/s", "--link-use", "2"],
        ["--records", "5/s", "--link", "0"],
        ["--records", "5/s", "--compression", "-1"],
        ["--records", "5/s", "--compression", "0"],
        ["--records", "5/s", "--compression", "nan"],
        ["--records", "5/s", "--record-size", "0"],
        ["--records", "5/s", "--headroom", "inf"],
        ["--records", "5/s", "--disk", "0"],
        ["--records", "1e400/s"],
    ],
)
def test_what_makes_no_plan_is_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
