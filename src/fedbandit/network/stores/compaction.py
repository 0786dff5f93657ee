"""Nothing is left in PostgreSQL's tables of what was deleted or replaced: they are written anew (`VACUUM FULL`).

PostgreSQL copies a row version that was deleted as long as anybody may still look at it: a transaction that began
before, in another session of the same database, whatever it does; one that is prepared; a replication slot or a
standby that says what it needs. So these are waited for, and named if they do not end; and each table's report says
whether anything was copied, for whatever reason.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from fedbandit.network.stores.store import NotAllowed, StoreError
from fedbandit.network.stores.tables import STATEMENT_SECONDS, TABLES, files

_HOLDERS = """
SELECT concat_ws(', ', concat('session ', pid, ' of role ', usename), nullif(application_name, ''), state,
    'since ' || to_char(xact_start, 'YYYY-MM-DD HH24:MI:SS TZ'))
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (datname = current_database() OR backend_type = 'walsender')
    AND greatest(age(backend_xmin), age(backend_xid)) >= age(%(last)s::xid)
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)  -- which nobody has to wait for
UNION ALL SELECT concat('prepared transaction ', quote_literal(gid), ' of role ', owner)
FROM pg_prepared_xacts WHERE database = current_database() AND age(transaction) >= age(%(last)s::xid)
UNION ALL SELECT concat('replication slot ', quote_literal(slot_name))
FROM pg_replication_slots WHERE age(xmin) >= age(%(last)s::xid)
"""
_UNSEEN = "somebody who is not in pg_stat_activity"


class Compaction:
    """Of the tables, step by step, so that others can write between two of them; it is given up after `patience` s."""

    def __init__(self, psycopg: Any, patience: float) -> None:
        self._psycopg, self._deadline = psycopg, time.monotonic() + patience
        self._last: str | None = None

    def step(self, db: Any) -> float | None:
        """None if nothing is left of what was deleted, or after how many seconds to look again.

        Refused, with the names of whoever holds it, if there is no time left. Needs the role that made the tables.
        """
        if self._last is None:
            # Whatever was deleted was deleted before this transaction: nobody who is younger sees it.
            (self._last,) = db.execute("SELECT pg_current_xact_id()::xid::text").fetchone()
        holders = self._holders(db)
        kept = 0 if holders else _write_anew(self._psycopg, db)
        if not holders and not kept:
            return None
        if time.monotonic() < self._deadline:
            return 0.05 if holders else 1.0
        what = f"{kept} deleted rows, which are still in its tables" if kept else "what was deleted"
        named = "; ".join(holders or self._holders(db) or [_UNSEEN])
        raise StoreError(
            f"The PostgreSQL store cannot be compacted: {named} may look at {what}; end that and ask again."
        )

    def _holders(self, db: Any) -> list[str]:
        return [found for (found,) in db.execute(_HOLDERS, {"last": self._last}).fetchall()]


def _write_anew(psycopg: Any, db: Any) -> int:
    """How many row versions have been copied although they were deleted."""
    before, kept = files(db), 0

    def note(said: Any) -> None:
        nonlocal kept  # "3 dead row versions cannot be removed yet.", in any language
        if (number := re.search(r"\d+", said.message_detail or "")) is not None:
            kept += int(number[0])

    db.execute("SET statement_timeout = 0")  # however long it takes
    db.add_notice_handler(note)
    try:
        for table in TABLES:
            db.execute(f"VACUUM (FULL, VERBOSE) {table}")
        with suppress(psycopg.errors.InsufficientPrivilege):
            db.execute("SELECT pg_switch_wal()")
            db.execute("CHECKPOINT")  # segments of the log that were written before are not needed any more
    finally:
        db.remove_notice_handler(note)
        with suppress(psycopg.Error):
            db.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
    if any(old == new for old, new in zip(before, files(db), strict=True)):
        raise NotAllowed(
            "The PostgreSQL store cannot be compacted: its tables are of another role, which has to run VACUUM FULL "
            f"{', '.join(TABLES)}; or, from PostgreSQL 17 on, grant MAINTAIN on them."
        )
    return kept
