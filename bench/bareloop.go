package main

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bareLoop is the least that durable group commit can cost: one goroutine
// appends the bytes that all waiting callers brought and calls fdatasync once
// for them.
type bareLoop struct {
	file    *os.File
	waiting chan *appending
	done    chan struct{}
}

// appending is one caller's record.
type appending struct {
	record []byte
	answer chan error
}

// newAppend makes a record of that many bytes, new in each call as a real one is.
func newAppend(r *rand.Rand, bytes int) *appending {
	a := &appending{record: make([]byte, bytes), answer: make(chan error, 1)}
	binary.LittleEndian.PutUint64(a.record, r.Uint64())
	return a
}

func newBareLoop(dir string) (*bareLoop, error) {
	file, err := os.OpenFile(filepath.Join(dir, "bare.log"), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &bareLoop{file: file, waiting: make(chan *appending, maxGroup), done: make(chan struct{})}
	go l.loop()
	return l, nil
}

// call returns once its record is on the disk.
func (l *bareLoop) call(a *appending) error {
	l.waiting <- a
	return <-a.answer
}

func (l *bareLoop) loop() {
	defer close(l.done)
	var group []*appending
	var buf []byte
	for first := range l.waiting {
		group = append(group[:0], first)
		for more := true; more && len(group) < maxGroup; {
			select {
			case next, ok := <-l.waiting:
				if more = ok; ok {
					group = append(group, next)
				}
			default:
				more = false
			}
		}
		buf = buf[:0]
		for _, a := range group {
			buf = append(buf, a.record...)
		}
		_, err := l.file.Write(buf)
		if err == nil {
			err = unix.Fdatasync(int(l.file.Fd()))
		}
		for _, a := range group {
			a.answer <- err
		}
	}
}

func (l *bareLoop) close() error {
	close(l.waiting)
	<-l.done
	return l.file.Close()
}
