package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PostgreSQL gives each of its processes a session of its own, so a signal to the process group does not reach them: these
// functions walk the tree of processes below the first one.

// pauseTree stops pid and everything below it, parents first so that none forks meanwhile.
func pauseTree(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStopped(pid); err != nil {
		return err
	}
	children, err := children(pid)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := pauseTree(child); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// resumeTree lets pid and everything below it go on, children first.
func resumeTree(pid int) error {
	children, err := children(pid)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := resumeTree(child); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return unix.Kill(pid, unix.SIGCONT)
}

// killTree ends pid and everything below it and returns when all are gone. The tree is stopped first: a parent that cannot run
// neither forks nor reaps, so each number still means the process that was found under it.
func killTree(pid int) error {
	if err := pauseTree(pid); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
	pids, err := tree(pid)
	if err != nil {
		return err
	}
	var handles []int
	defer func() {
		for _, handle := range handles {
			_ = unix.Close(handle) // A handle only watches.
		}
	}()
	for _, pid := range pids {
		if handle, err := unix.PidfdOpen(pid, 0); err == nil {
			handles = append(handles, handle)
		}
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	for _, handle := range handles {
		if err := awaitEnd(handle); err != nil {
			return err
		}
	}
	return nil
}

// tree lists pid and everything below it.
func tree(pid int) ([]int, error) {
	children, err := children(pid)
	if err != nil {
		return nil, err
	}
	all := []int{pid}
	for _, child := range children {
		below, err := tree(child)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

func children(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		state, parent, err := status(child)
		if err == nil && parent == pid && state != 'Z' {
			found = append(found, child)
		}
	}
	return found, nil
}

// status reads state and parent of a process from /proc/PID/stat (proc_pid_stat(5)), where the name in parentheses may itself
// hold any byte.
func status(pid int) (state byte, parent int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, 0, unix.ESRCH
	}
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("unreadable /proc/%d/stat: %q", pid, stat)
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0][0], parent, err
}

func awaitStopped(pid int) error {
	deadline := time.NewTimer(stopLimit)
	defer deadline.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		state, _, err := status(pid)
		if err != nil {
			return err
		}
		switch state {
		case 'T':
			return nil
		case 'Z', 'X':
			return unix.ESRCH
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return fmt.Errorf("process %d did not stop within %v", pid, stopLimit)
		}
	}
}

// awaitEnd waits until the process of a pidfd is gone; a zombie that nobody reaps counts as gone.
func awaitEnd(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(stopLimit.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("a process is still there %v after SIGKILL", stopLimit)
		}
		return err
	}
}
