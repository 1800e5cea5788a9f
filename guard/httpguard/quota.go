package httpguard

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/counterfoil/counterfoil/api"
	"github.com/counterfoil/counterfoil/budget"
	"github.com/counterfoil/counterfoil/internal/clock"
)

// show adds to the refusal of a budget where it stands, if callers may see that: to the problem, and to the headers of
// draft-ietf-httpapi-ratelimit-headers if waiting helps.
func (g *Guard) show(h http.Header, p *api.Problem, err error) {
	var exceeded *budget.ExceededError
	if !g.options.ShowFigures || p.Code != api.BudgetExceeded || !errors.As(err, &exceeded) {
		return
	}
	now := clock.System{}.Now()
	p.Refused = nil
	var left, policy []string
	for i := range exceeded.Refused {
		f := &exceeded.Refused[i]
		p.Refused = append(p.Refused, api.RefusedBudget{Budget: api.BudgetName(f.Name), RefusedFigures: &api.RefusedFigures{
			Unit: f.Unit, Limit: limitOf(f, f.Limit), Spent: f.Spent, Held: f.Held, Remaining: limitOf(f, f.Remaining), Amount: f.Amount,
			ResetsAt: api.TimeOf(f.ResetsAt),
		}})
		name := strconv.Quote(f.Name) // names of budgets need no escape
		reset := max(time.UnixMilli(f.ResetsAt).Sub(now), 0)
		left = append(left, name+";r="+strconv.FormatUint(f.Remaining, 10)+";t="+seconds(reset))
		policy = append(policy, name+";q="+strconv.FormatUint(f.Limit, 10)+";w="+seconds(time.Duration(f.ResetsAt-f.WindowAt)*time.Millisecond))
	}
	if p.Status == api.StatusRetryBudget {
		h.Set("RateLimit", strings.Join(left, ", "))
		h.Set("RateLimit-Policy", strings.Join(policy, ", "))
	}
}

func limitOf(f *budget.Figures, amount uint64) api.Limit {
	if f.Unlimited {
		return api.Unlimited()
	}
	return api.LimitOf(amount)
}

// seconds rounds up: whoever waits as long has waited long enough.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }
