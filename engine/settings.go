package engine

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsafe says that the server's settings are weaker than the guarantee needs.
var ErrUnsafe = errors.New("the server's settings are weaker than the guarantee needs")

// Setting is one setting of a server that a guarantee rests on.
type Setting struct {
	Where string // which server, where there are several
	Name  string
	Value string
	Want  string
	Safe  bool
	Mend  string // the command that sets it right
}

func (s Setting) String() string {
	where := ""
	if s.Where != "" {
		where = " on " + s.Where
	}
	return fmt.Sprintf("%s is %q%s, want %s: %s", s.Name, s.Value, where, s.Want, s.Mend)
}

// Accept lists the settings that are not safe. Unless weaker ones are accepted
// explicitly, any of them is an error that names them all.
func Accept(settings []Setting, unsafe bool) ([]string, error) {
	var weak []string
	for _, s := range settings {
		if !s.Safe {
			weak = append(weak, s.String())
		}
	}
	if len(weak) > 0 && !unsafe {
		return weak, fmt.Errorf("%w: %s (or accept the risk with --unsafe-durability)", ErrUnsafe, strings.Join(weak, "; "))
	}
	return weak, nil
}
