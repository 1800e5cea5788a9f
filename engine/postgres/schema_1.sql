-- Version 1 of the schema. Each version is a file of statements that brings the
-- one before it up to date.

CREATE SCHEMA IF NOT EXISTS counterfoil;

CREATE TABLE counterfoil.meta (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	version integer NOT NULL
);

-- One row a record. The two times are indexed only where they are set: budgets,
-- quotas and writer records, which are updated all the time, have neither, so
-- that their updates stay within the page (HOT) and leave no index entry
-- behind. The fill factor keeps room for that.
CREATE TABLE counterfoil.records (
	scope bytea NOT NULL,
	kind smallint NOT NULL,
	id bytea NOT NULL,
	version bytea NOT NULL,
	expiry bigint NOT NULL,
	lease bigint NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (scope, kind, id)
) WITH (
	fillfactor = 80,
	-- What expires is deleted in bulk: vacuum when 2 % are dead, not 20 %.
	autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX records_expiry ON counterfoil.records (scope, kind, expiry, id) WHERE expiry > 0;
CREATE INDEX records_lease ON counterfoil.records (scope, kind, lease, id) WHERE lease > 0;

-- swap applies changes if and only if every key that was read is unchanged and
-- the clock is not past the limit. It returns 0 if it did, 1 on a conflict and 2
-- if it is too late; in the last two cases it has written nothing.
--
-- A key that was absent and is created is not looked up first: the primary key
-- takes it once, or not at all, which is a conflict. That is all a comparison
-- could find, and it misses nothing: who inserted the same key and has not
-- committed is waited for (for as long as lock_timeout says), and counts if the
-- commit comes. A key that was created and deleted meanwhile is absent, as it was
-- when it was read. Every other key is compared.
--
-- Keys come in the order of kind and id, so that all transactions lock in one
-- order. A key that was absent is locked by a hash of it: alone by who inserts
-- it, shared by who only rests on its absence. Who has many absent keys locks the
-- scope's whole absence alone, which everybody else shares: no transaction holds
-- more locks than the server has room for by default.
--
-- The timeline of the server must be the one that was read from: another one is
-- another server, promoted meanwhile, which may lack what was read.
CREATE FUNCTION counterfoil.swap(
	the_scope bytea,
	kinds smallint[], ids bytea[], seen bytea[],  -- every key that was read and is not created, and its version, null if absent
	written boolean[],                            -- whether it is changed
	hashes bigint[], alone boolean[],             -- locks of absent keys, ascending
	new_kinds smallint[], new_ids bytea[], new_versions bytea[], new_expiries bigint[], new_leases bigint[], new_datas bytea[],
	set_kinds smallint[], set_ids bytea[], set_versions bytea[], set_expiries bigint[], set_leases bigint[], set_datas bytea[],
	del_kinds smallint[], del_ids bytea[],
	the_timeline text,                            -- hex, as in the name of a WAL file
	not_after bigint, the_now bigint,             -- ms; without the_now the server's clock is asked
	the_turn bigint                               -- the lock on having the scope alone
) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	-- Whoever met a conflict may have the scope for a moment alone: the turn.
	PERFORM CASE WHEN l.alone THEN pg_advisory_xact_lock(l.hash) ELSE pg_advisory_xact_lock_shared(l.hash) END
		FROM unnest(the_turn || hashes, false || alone) AS l(hash, alone);

	-- Key after key is locked and compared as it is once it is locked. A subquery
	-- that locks is a plan of its own, by the primary key and once for each key,
	-- whatever the planner believes about the table.
	PERFORM 1 FROM unnest(kinds, ids, seen, written) AS k(kind, id, seen, written)
		LEFT JOIN LATERAL (
			SELECT r.version FROM counterfoil.records r WHERE k.written AND r.scope = the_scope AND r.kind = k.kind AND r.id = k.id FOR UPDATE
		) w ON true
		LEFT JOIN LATERAL (
			SELECT r.version FROM counterfoil.records r WHERE NOT k.written AND r.scope = the_scope AND r.kind = k.kind AND r.id = k.id FOR SHARE
		) s ON true
		WHERE coalesce(w.version, s.version) IS DISTINCT FROM k.seen LIMIT 1;
	IF FOUND THEN
		RETURN 1;
	END IF;

	IF the_timeline <> left(pg_walfile_name(pg_current_wal_lsn()), 8) THEN
		RETURN 1;
	END IF;
	IF coalesce(the_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) > not_after THEN
		RETURN 2;
	END IF;

	IF cardinality(new_kinds) > 0 THEN
		-- A block of its own takes back what it has inserted by then, and keeps
		-- the keys of conflicts out of the server's log. Nothing but the insert is
		-- in it: a row that the transaction has locked before and changes in such
		-- a block would have two owners, which costs more.
		BEGIN
			INSERT INTO counterfoil.records (scope, kind, id, version, expiry, lease, data)
				SELECT the_scope, n.* FROM unnest(new_kinds, new_ids, new_versions, new_expiries, new_leases, new_datas) AS n;
		EXCEPTION WHEN unique_violation THEN
			RETURN 1;
		END;
	END IF;
	-- One by one, each by the primary key: a join with the arrays may be planned
	-- for an empty table as a walk through all of it.
	FOR i IN 1 .. cardinality(set_kinds) LOOP
		UPDATE counterfoil.records r SET version = set_versions[i], expiry = set_expiries[i], lease = set_leases[i], data = set_datas[i]
			WHERE r.scope = the_scope AND r.kind = set_kinds[i] AND r.id = set_ids[i];
		IF NOT FOUND THEN
			RAISE EXCEPTION 'a record went meanwhile' USING ERRCODE = 'CF001';
		END IF;
	END LOOP;
	FOR i IN 1 .. cardinality(del_kinds) LOOP
		DELETE FROM counterfoil.records r WHERE r.scope = the_scope AND r.kind = del_kinds[i] AND r.id = del_ids[i];
	END LOOP;
	RETURN 0;
END $$;

-- await_standbys makes the COMMIT of this transaction wait until the synchronous
-- standbys have it on disk, and refuses if none are named any more.
CREATE FUNCTION counterfoil.await_standbys() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'on', true);
	IF current_setting('synchronous_standby_names') = '' THEN
		RAISE EXCEPTION 'synchronous_standby_names is empty, and the guarantee is that of several machines' USING ERRCODE = 'CF002';
	END IF;
END $$;

-- touch writes nothing but a message that nobody reads: the COMMIT then waits
-- until the standbys have everything that was visible before it. It returns as
-- swap does.
CREATE FUNCTION counterfoil.touch(the_timeline text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF the_timeline <> left(pg_walfile_name(pg_current_wal_lsn()), 8) THEN
		RETURN 1;
	END IF;
	PERFORM pg_logical_emit_message(true, 'counterfoil', '');
	RETURN 0;
END $$;
