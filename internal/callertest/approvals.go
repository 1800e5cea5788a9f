package callertest

import (
	"time"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/approval"
	"github.com/counterfoil/counterfoil/internal/storetest"
	"github.com/counterfoil/counterfoil/permit"
	"github.com/counterfoil/counterfoil/state"
)

func (w *World) asks(c counterfoil.Caller, request string) counterfoil.Approval {
	w.T.Helper()
	a, err := c.RequestApproval(w.ctx(), counterfoil.ApprovalParams{Call: call(request), Arguments: []byte(`{}`), TTL: time.Hour})
	w.must(err)
	return a
}

func (w *World) wantApproval(what string, a counterfoil.Approval, want approval.State) {
	w.T.Helper()
	if a.State != want || (want == approval.Granted) != (len(a.Permit) > 0) || len(a.ID) != 64 || !a.ExpiresAt.After(w.Clock.Now()) {
		w.T.Fatalf("%s: %+v; want %s", what, a, want)
	}
}

func (w *World) deciding(id string) approval.DecideParams {
	return approval.DecideParams{Scope: storetest.Scope, ID: id, By: "olga", Note: "so it is"}
}

// A call that is approved begins once, with the permit that came with the approval, and is replayed without another.
func approvedCall(w *World) {
	asked := w.asks(w.Ann, "r1")
	w.wantApproval("asked", asked, approval.Pending)
	p := request("order")
	p.Expected, p.Permit = call("r1"), []byte(`{}`)
	w.refused("without a permit", w.Ann, p, permit.ErrMalformed)
	if _, err := w.Core.Grant(w.ctx(), counterfoil.GrantParams{DecideParams: w.deciding(asked.ID), TTL: time.Minute}); err != nil {
		w.T.Fatal(err)
	}
	granted := w.asks(w.Ann, "r1")
	w.wantApproval("granted", granted, approval.Granted)
	if granted.ID != asked.ID || granted.Note != "so it is" || granted.Fresh {
		w.T.Fatalf("granted: %+v", granted)
	}
	p.Permit = granted.Permit
	w.complete(w.Ann, w.execute(w.Ann, p), text("done"), nil)
	second := p
	second.Key = "another"
	w.refused("the permit again", w.Ann, second, permit.ErrReplayed)
	p.Permit = []byte(`{}`)
	b, err := w.Ann.Begin(w.ctx(), p)
	w.must(err)
	if b.State != counterfoil.Replay || string(b.Receipt.Body) != "done" {
		w.T.Fatalf("begin again: %+v", b)
	}
}

func approvalOfOthers(w *World) {
	asked := w.asks(w.Ann, "r1")
	if _, err := w.Core.Grant(w.ctx(), counterfoil.GrantParams{DecideParams: w.deciding(asked.ID)}); err != nil {
		w.T.Fatal(err)
	}
	w.wantApproval("the same call of another owner", w.asks(w.Bob, "r1"), approval.Pending)
	w.wantApproval("another call", w.asks(w.Ann, "r2"), approval.Pending)
	w.wantApproval("the call that was granted", w.asks(w.Ann, "r1"), approval.Granted)
}

func approvalDenied(w *World) {
	asked := w.asks(w.Ann, "r1")
	if _, err := w.Core.Approvals.Deny(w.ctx(), w.deciding(asked.ID)); err != nil {
		w.T.Fatal(err)
	}
	denied := w.asks(w.Ann, "r1")
	w.wantApproval("denied", denied, approval.Denied)
	if denied.Note != "so it is" {
		w.T.Fatalf("denied: %+v", denied)
	}
}

// approved asks for a call of Ann and grants it.
func (w *World) approved(request string, ttl time.Duration) counterfoil.BeginParams {
	w.T.Helper()
	asked := w.asks(w.Ann, request)
	_, err := w.Core.Grant(w.ctx(), counterfoil.GrantParams{DecideParams: w.deciding(asked.ID), TTL: ttl})
	w.must(err)
	granted := w.asks(w.Ann, request)
	w.wantApproval("granted", granted, approval.Granted)
	return counterfoil.BeginParams{Key: request, Fingerprint: counterfoil.Fingerprint{1}, Expected: call(request), Permit: granted.Permit}
}

func approvalRevoked(w *World) {
	p := w.approved("r1", time.Hour)
	_, err := w.Core.Permits.Revoke(w.ctx(), permit.RevokeParams{Scope: storetest.Scope, Subject: p.Expected.Subject})
	w.must(err)
	w.refused("the permit of a call that is revoked", w.Ann, p, permit.ErrRevoked)
}

func approvalOver(w *World) {
	p := w.approved("r1", time.Minute)
	w.Clock.Advance(time.Minute + time.Second)
	w.refused("the permit after its time", w.Ann, p, permit.ErrExpired)
	again := w.asks(w.Ann, "r1")
	w.wantApproval("asked after its time", again, approval.Pending)
	second := w.approved("r1", time.Minute)
	w.execute(w.Ann, second)
}

func approvalInvalid(w *World) {
	for name, p := range map[string]counterfoil.ApprovalParams{
		"no arguments":             {Call: call("r1")},
		"arguments of other calls": {Call: call("r1"), Arguments: []byte(`{"a":1}`)},
		"too short a wait":         {Call: call("r1"), Arguments: []byte(`{}`), TTL: time.Second},
		"half a second":            {Call: call("r1"), Arguments: []byte(`{}`), TTL: time.Hour + time.Second/2},
		"no request id":            {Call: call(""), Arguments: []byte(`{}`)},
	} {
		if a, err := w.Ann.RequestApproval(w.ctx(), p); err == nil {
			w.T.Fatalf("%s: %+v", name, a)
		} else {
			w.want(name, err, approval.ErrInvalid)
			w.want(name, err, state.ErrInvalid)
		}
	}
}
