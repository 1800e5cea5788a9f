// Package clients_test runs clients and servers that people use, from npm and from their own Go modules, against the guards
// of the program. What npm installs is in package.json, and each version in package-lock.json; it is installed once, into
// .bin/clients of the checkout.
package clients_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// installTime bounds an installation or a build.
const installTime = 4 * time.Minute

// What is started here, by its path; set once before any test.
var (
	program string // counterfoil
	modules string // the folder that node finds packages from
	mock    string // stripe-mock
)

// stripeMock is the answer of the Stripe API, by Stripe: https://github.com/stripe/stripe-mock.
const stripeMock = "github.com/stripe/stripe-mock@v0.203.0"

func TestMain(m *testing.M) { os.Exit(installAndRun(m)) }

func installAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "counterfoil-clients")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(build(dir), installPackages(dir), installMock()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// quiet runs a command, and tells what it said only if it failed.
func quiet(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, said.Bytes())
	}
	return nil
}

func build(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	program = filepath.Join(dir, "counterfoil")
	return quiet(exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/counterfoil/counterfoil/cmd/counterfoil"))
}

// installPackages installs what the lock file says, unless that has been done. Scripts lie in a folder below, for this run.
func installPackages(dir string) error {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(lock)
	at, err := filepath.Abs(filepath.Join("..", "..", ".bin", "clients", hex.EncodeToString(sum[:8])))
	if err != nil {
		return err
	}
	if _, err := os.Stat(at); err != nil {
		if err := install(at, lock, filepath.Base(dir)); err != nil {
			return err
		}
	}
	modules = at
	return nil
}

// install makes the folder whole beside its place, so that one that is there is whole.
func install(at string, lock []byte, suffix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	list, err := os.ReadFile("package.json")
	if err != nil {
		return err
	}
	half := at + "." + suffix
	defer func() { _ = os.RemoveAll(half) }()
	if err := errors.Join(os.MkdirAll(half, 0o755), os.WriteFile(filepath.Join(half, "package.json"), list, 0o644),
		os.WriteFile(filepath.Join(half, "package-lock.json"), lock, 0o644)); err != nil {
		return err
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error")
	npm.Dir = half
	if err := quiet(npm); err != nil {
		return fmt.Errorf("the packages of tests/clients cannot be installed; 'make setup' installs npm: %w", err)
	}
	if err := os.Rename(half, at); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// installMock builds stripe-mock, outside of this module and unless that has been done.
func installMock() error {
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	at, err := filepath.Abs(filepath.Join("..", "..", ".bin", filepath.Base(stripeMock)))
	if err != nil {
		return err
	}
	mock = filepath.Join(at, "stripe-mock")
	if _, err := os.Stat(mock); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "install", stripeMock)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+at)
	return quiet(cmd)
}
