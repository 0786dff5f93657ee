"""A compaction leaves nothing of what was deleted, or says who keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from fedbandit.network.stores import StoreError, compaction
from fedbandit.network.stores.postgres import PostgresStore
from fedbandit.network.stores.tables import TABLES
from fedbandit.state import LONG

SECRET = b"what somebody uploaded, and is erased" * 20


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """With little patience."""
    with closing(PostgresStore(postgres_url, patience=1.0)) as opened:
        opened.replace("f", b"snapshot")
        opened.append("f", [SECRET])
        yield opened


def versions(url: str) -> int:
    """Rows of the tables, whoever may see them: pages of 8 kB that are not empty."""
    with psycopg.connect(url, autocommit=True) as db:
        sizes = [db.execute("SELECT pg_relation_size(%s)", (table,)).fetchone() for table in TABLES]
    return sum(size[0] for size in sizes if size is not None)


def assert_held(store: PostgresStore, held: str) -> None:
    with pytest.raises(StoreError, match=f"cannot be compacted: {held}.* may look at .*; end that and ask again"):
        store.compact()


@pytest.mark.parametrize("what", ["SELECT 1", "CREATE TABLE mine ()"])
def test_an_older_transaction_is_named(store: PostgresStore, postgres_url: str, what: str) -> None:
    """It has looked, or written, and touched none of the tables: rows that were deleted since are copied."""
    with psycopg.connect(postgres_url, application_name="report") as other:
        isolation = psycopg.IsolationLevel.REPEATABLE_READ if what.startswith("SELECT") else None
        other.isolation_level = isolation
        other.execute(what)
        store.replace("f", b"erased")
        assert_held(store, f"session {other.info.backend_pid} of role fedbandit, report, idle in transaction, since ")
        assert versions(postgres_url) > 8192, "it has not been written anew in vain"
        other.rollback()
        store.compact()
    assert versions(postgres_url) == 8192
    assert store.read("f") == (b"erased", [])


def test_younger_transactions_are_not_waited_for(store: PostgresStore, postgres_url: str) -> None:
    store.replace("f", b"erased")
    with psycopg.connect(postgres_url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        store._connection().execute("SELECT pg_current_xact_id()")  # others go on meanwhile
        original = store._connection().execute

        def execute(query: str, *values: object) -> object:
            done = original(query, *values)
            if "pg_current_xact_id" in query and other.info.transaction_status == 0:
                other.execute("SELECT 1")
            return done

        store._connection().execute = execute
        store.compact()
        assert other.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    del store._connection().execute
    assert versions(postgres_url) == 8192


def test_a_prepared_transaction_is_named(store: PostgresStore, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("BEGIN; CREATE TABLE mine (); PREPARE TRANSACTION 'bank'")
        store.replace("f", b"erased")
        assert_held(store, "prepared transaction 'bank' of role fedbandit")
        other.execute("ROLLBACK PREPARED 'bank'")
    store.compact()


def test_another_role_sees_who_it_is(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS clerk_of_tables")
        db.execute("CREATE ROLE clerk_of_tables LOGIN")
        db.execute("GRANT CREATE ON SCHEMA public TO clerk_of_tables")
    with closing(PostgresStore(postgres_url.replace("fedbandit@", "clerk_of_tables@"), patience=1.0)) as store:
        store.replace("f", bytes(LONG + 1))
        with psycopg.connect(postgres_url) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT 1")
            store.replace("f", b"erased")
            assert_held(store, f"session {other.info.backend_pid} of role fedbandit")
        store.compact()


def test_copied_rows_are_noticed_whoever_may_see_them(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table's report counts them."""
    monkeypatch.setattr(compaction, "_HOLDERS", "SELECT 'nobody' WHERE %(last)s = ''")
    with psycopg.connect(postgres_url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1")
        store.replace("f", b"erased")
        with pytest.raises(StoreError, match="is not in pg_stat_activity may look at 2 deleted rows, which are still"):
            store.compact()
    store.compact()
