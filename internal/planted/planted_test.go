package planted_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/counterfoil/counterfoil/internal/planted"
)

// caught says, for every planted bug, which test of which package catches it. A
// package that plants a bug adds its line here.
var caught = []struct {
	bug planted.Bug
	pkg string // folder below the module's root
	run string // the test's name
}{
	{planted.RefusalThatWrites, "state", "TestRefusalWritesNothing"},
	{planted.OwnTokenAnywhere, "state", "TestOwnTokenOutsideTheAnchorIsExists"},
	{planted.HoldFreedTwice, "state", "TestBucketIsFreedOnce"},
	{planted.HoldFreedTwice, "state", "TestWhatAHoldTookIsCapturedReturnedOrStillThere"},
	{planted.UncomparedCount, "state", "TestClaimNeedsItsCount"},
	{planted.UncomparedCount, "state", "TestTwoInstancesCannotCountPastEachOther"},
	{planted.SecondClock, "state", "TestExpiredIsDecidedAtReadTime"},
	{planted.RefusalThatWrites, "state", "TestDecideAgreesWithTheModel"},
	{planted.OwnTokenAnywhere, "state", "TestDecideAgreesWithTheModel"},
	{planted.HoldFreedTwice, "state", "TestDecideAgreesWithTheModel"},
	{planted.SecondClock, "state", "TestDecideAgreesWithTheModel"},
	{planted.UnsyncedCommit, "tests/crash", "TestACrashAtAnyMomentLeavesAMomentOfTheHistory"},
	{planted.FatalThatReturns, "tests/crash", "TestAFailedWriteLatchesAndIsNeverAYes"}, // the database panics, in the end
	{planted.WrittenKeysOnly, "engine/memory", "TestEngine"},
	{planted.RestartedVersions, "store", "TestInstancesNeverDrawTheSameVersion"},
	{planted.CorruptIsAbsent, "store", "TestInAGroupAnInvalidOrCorruptBatchFailsAlone"},
	{planted.CorruptIsAbsent, "store", "TestARecordUnderAnUnknownKeyIsNeitherAbsentNorCorrupt"},
}

// TestPlantedBugsAreCaught runs each test without its bug, when it must pass,
// and with it, when it must fail.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	binaries := map[string]string{}
	for _, c := range caught {
		if binaries[c.pkg] == "" {
			binaries[c.pkg] = build(t, c.pkg)
		}
	}
	for _, c := range caught {
		t.Run(string(c.bug)+"/"+c.run, func(t *testing.T) {
			t.Parallel()
			if out, passed := run(t, binaries[c.pkg], c.pkg, c.run, ""); !passed || !strings.Contains(out, "--- PASS: "+c.run) {
				t.Fatalf("without a bug it does not pass:\n%s", out)
			}
			if out, passed := run(t, binaries[c.pkg], c.pkg, c.run, c.bug); passed || !strings.Contains(out, "--- FAIL: "+c.run) && !strings.Contains(out, "panic: ") {
				t.Fatalf("with the bug it does not fail:\n%s", out)
			}
		})
	}
}

// build makes the test binary of a package with bugs in it.
func build(t *testing.T, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "planted.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "planted", "-c", "-o", binary, "./"+pkg)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// run runs one test in its package's folder, with a bug or without.
func run(t *testing.T, binary, pkg, name string, bug planted.Bug) (output string, passed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^"+name+"$", "-test.v", "-test.timeout", "2m")
	cmd.Dir = filepath.Join("..", "..", filepath.FromSlash(pkg))
	cmd.Env = append(os.Environ(), "COUNTERFOIL_PLANTED="+string(bug), "COUNTERFOIL_SEED=5", "RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=100ms")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestNoBugIsPlantedInANormalBuild(t *testing.T) {
	t.Parallel()
	for _, c := range caught {
		if planted.On(c.bug) {
			t.Errorf("%s is planted", c.bug)
		}
	}
}
