package testserver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// initdb takes most of a second, so its result is kept in memory (about 40 MB) and written out for each server.
var template struct {
	sync.Once
	files map[string][]byte // by path inside the data directory; nil is a directory
	order []string          // directories before what is in them
	err   error
}

// writeTemplate fills an empty directory with a new data directory.
func writeTemplate(t TB, programs, dir string) error {
	t.Helper()
	template.Do(func() { template.err = initTemplate(t, programs) })
	if template.err != nil {
		return template.err
	}
	for _, name := range template.order {
		path, content := filepath.Join(dir, name), template.files[name]
		if content == nil {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			if err := own(path, 0o700); err != nil {
				return err
			}
		} else if err := writeOwned(path, content); err != nil {
			return err
		}
	}
	return nil
}

func initTemplate(t TB, programs string) error {
	t.Helper()
	dir := ownedDir(t)
	data, secret := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	if err := writeOwned(secret, []byte(password)); err != nil {
		return err
	}
	initdb := (&PostgresServer{programs: programs}).command("initdb", dir, "-D", data, "--username", superuser, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	template.files = map[string][]byte{}
	return filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == data {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		template.order = append(template.order, name)
		if entry.IsDir() {
			template.files[name] = nil
			return nil
		}
		content, err := os.ReadFile(path)
		template.files[name] = append([]byte{}, content...)
		return err
	})
}

// removeSegment gives back the System V shared memory segment (a few bytes that keep two servers off one directory) that a
// server leaves behind when it is killed. Its id is the second number of line 7 of postmaster.pid (PostgreSQL's
// src/include/utils/pidfile.h).
func removeSegment(dir string) {
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) < 7 {
		return
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 {
		if id, err := strconv.Atoi(fields[1]); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // Another server of this test may have done it.
		}
	}
}
