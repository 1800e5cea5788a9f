package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil/api"
)

func (a *app) approvalsCommand() *cobra.Command {
	return group("approvals", "Calls that wait for a person: see what they would do, and grant or deny them",
		a.approvalsList(), a.approvalsShow(), a.approvalsGrant(), a.approvalsDeny())
}

func (a *app) approvalsList() *cobra.Command {
	var list listFlags
	var state string
	c := a.asking("list", "List calls that wait for a person, or did", cobra.NoArgs, func(ctx context.Context, c *call, at *reached) error {
		q := list.query()
		if state != "" {
			q.Set("state", state)
		}
		var ans api.ApprovalList
		if err := at.get(ctx, "/v1/approvals", q, &ans); err != nil {
			return err
		}
		if c.json {
			return c.printJSON(&ans)
		}
		for _, id := range ans.Damaged {
			c.note("damaged, its state is not known: " + string(id))
		}
		c.more(ans.NextCursor)
		return c.table("STATE\tOWNER\tSERVER\tTOOL\tASKED\tID", func(w *tabwriter.Writer) {
			for i := range ans.Items {
				q := &ans.Items[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", q.State, plainly(q.Owner), plainly(q.Server), plainly(q.Tool), q.AskedAt, q.ID)
			}
		})
	})
	list.bind(c.Flags())
	c.Flags().StringVar(&state, "state", "", "pending, granted, denied or expired")
	return c
}

func (a *app) approvalsShow() *cobra.Command {
	return a.asking("show ID", "Show a call that waits for a person, with its arguments", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		path, err := c.approvalPath("")
		if err != nil {
			return err
		}
		var q api.Approval
		if err := at.get(ctx, path, nil, &q); err != nil {
			return err
		}
		return c.showApproval(&q)
	})
}

func (a *app) approvalsGrant() *cobra.Command {
	var req api.GrantRequest
	c := a.asking("grant ID", "Grant a call: its owner gets a permit for that very call, to be used once", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		return c.decide(ctx, at, "/grant", &req)
	})
	secondsFlag(c.Flags(), &req.TTL, "ttl", "how long its permit can be used, 1s to 1h; without it 5m")
	c.Flags().StringVar(&req.Note, "note", "", "why; kept with the call, and shown to its owner")
	return c
}

func (a *app) approvalsDeny() *cobra.Command {
	var req api.DenyRequest
	c := a.asking("deny ID", "Deny a call, for a day", cobra.ExactArgs(1), func(ctx context.Context, c *call, at *reached) error {
		return c.decide(ctx, at, "/deny", &req)
	})
	c.Flags().StringVar(&req.Note, "note", "", "why; kept with the call, and shown to its owner")
	return c
}

func (c *call) decide(ctx context.Context, at *reached, verb string, req any) error {
	path, err := c.approvalPath(verb)
	if err != nil {
		return err
	}
	var ans api.DecisionAnswer
	if err := at.post(ctx, path, req, &ans); err != nil {
		return err
	}
	return c.showApproval(&ans.Approval)
}

// approvalPath is the path of the request that the first argument names.
func (c *call) approvalPath(after string) (string, error) {
	id, err := digest("ID", c.args[0])
	return "/v1/approvals/" + string(id) + after, err
}

func (c *call) showApproval(q *api.Approval) error {
	if c.json {
		return c.printJSON(q)
	}
	fmt.Fprintf(c.Out, "%s\nid          %s\nowner       %s\nsubject     %s\ncapability  %s\nserver      %s\ntool        %s\nrequest id  %s\narguments   %s\nasked at    %s\nexpires at  %s\n",
		q.State, q.ID, plainly(q.Owner), plainly(q.Subject), plainly(q.Capability), plainly(q.Server), plainly(q.Tool), plainly(q.RequestID),
		plainly(q.Arguments), q.AskedAt, q.ExpiresAt)
	if d := q.Decided; d != nil {
		fmt.Fprintf(c.Out, "decided     by %s at %s: %s\n", plainly(d.By), d.At, plainly(d.Note))
	}
	return nil
}

// plainly writes text that somebody else chose so that it shows what it is: whatever a terminal would act on, hide or turn
// around stands there as JSON escapes it (RFC 8259, 7). So does every blank after another, which could push text to where a
// line or a column of its own would begin.
func plainly[T ~string | ~[]byte](text T) string {
	return escaped(string(text), func(before, c rune) bool { return before == ' ' && c == ' ' })
}

// escaped writes text with whatever a terminal would act on, hide or turn around as JSON escapes it, and besides what too
// says of a letter and the one before it. JSON stays the same JSON: outside its strings there is nothing of the kind.
func escaped(text string, too func(before, c rune) bool) string {
	var b strings.Builder
	var last rune
	for _, c := range text {
		before := last
		last = c
		switch {
		case unicode.IsPrint(c) && !unseen(c) && !too(before, c):
			b.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return b.String()
}

// unseen reports whether a letter or mark shows nothing, although it counts as printable.
func unseen(c rune) bool {
	return c == '\u2800' || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
