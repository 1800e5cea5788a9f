package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestGoClientWritesOnceThroughTheGuard lets the client of the Go SDK use the same server.
func TestGoClientWritesOnceThroughTheGuard(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := guarded(t, t.TempDir(), server("mcp-server-filesystem", root), environment())
	cmd := exec.CommandContext(t.Context(), p.Command, p.Args...)
	cmd.Env = environ()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "clients", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) < 10 {
		t.Fatalf("tools: %+v, %v", tools, err)
	}
	for i, content := range []string{"once", "once"} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Meta: mcp.Meta{"io.counterfoil/idempotency-key": "k1"}, Name: "write_file", Arguments: object{"path": filepath.Join(root, "a"), "content": content},
		})
		if err != nil || result.IsError || (result.Meta["io.counterfoil/replayed"] == true) != (i == 1) {
			t.Fatalf("call %d: %+v, %v", i, result, err)
		}
		if i == 0 {
			if err := os.Remove(filepath.Join(root, "a")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(root, "a")); err == nil {
		t.Error("the file was written twice")
	}
}
