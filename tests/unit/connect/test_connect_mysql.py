"""URLs and statements of MySQL and MariaDB, without a server; integration/test_connect_mysql.py has one."""

from __future__ import annotations

import pytest

from odradek.connect import databases
from odradek.connect.databases import check_database, database_of
from odradek.connect.mysql import MySql, MySqlDialect
from odradek.spark.stores.databases import StoreError

DIALECT = MySqlDialect(MySql("db", 3306, "o"))


@pytest.mark.parametrize(
    ("url", "user", "password", "wanted"),
    [
        ("mysql://u:p%40@db:3307/o", "", "", MySql("db", 3307, "o", "u", "p@")),
        ("mariadb://db/o", "u", "p", MySql("db", 3306, "o", "u", "p")),
        ("jdbc:mysql://db/o?user=u&password=p", "", "", MySql("db", 3306, "o", "u", "p")),
        ("mysql://u:p@db/o", "v", "q", MySql("db", 3306, "o", "v", "q")),
        ("mysql://db/o?ssl_ca=/c.pem", "", "", MySql("db", 3306, "o", tls=(("ssl_ca", "/c.pem"),))),
    ],
)
def test_url_names_server_database_and_user(url: str, user: str, password: str, wanted: MySql) -> None:
    assert database_of(url, user, password) == wanted


def test_upsert_names_all_columns_but_the_key() -> None:
    assert DIALECT.insert("o", ["id", "a%`"], ["id"]) == (
        "INSERT INTO `o` (`id`, `a%%```) VALUES (%s, %s) ON DUPLICATE KEY UPDATE `a%%``` = VALUES(`a%%```)"
    )
    assert DIALECT.insert("s.o", ["id"], ["id"]).endswith("UPDATE `id` = VALUES(`id`)")
    assert DIALECT.insert("o", ["id"], []) == "INSERT INTO `o` (`id`) VALUES (%s)"


def test_key_columns_have_types_that_an_index_takes() -> None:
    made = DIALECT.create_table("o", [("id", "string"), ("text", "string"), ("n", "bigint")], ["id"])
    assert "`id` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" in made
    assert "`text` LONGTEXT" in made
    assert "PRIMARY KEY (`id`)" in made
    with pytest.raises(StoreError, match="no column x"):
        DIALECT.create_table("o", [("id", "string")], ["x"])


def test_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"connection.url": "mysql://db/o", "connection.user": "", "connection.password": ""}
    assert check_database(values) == {}
    monkeypatch.setattr(databases, "find_spec", lambda _name: None)
    (line,) = check_database(values)["connection.url"]
    assert "pymysql" in line
    assert "mysql]" in line
