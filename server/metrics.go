package server

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what the server counts. No label names an owner, a scope or a budget: whoever may read metrics need not
// know them, and their number is without bound.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	panics   prometheus.Counter
	handler  http.Handler
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "counterfoil_http_requests_total", Help: "Requests answered, by route and outcome (ok, execute, replay or a code).",
		}, []string{"route", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "counterfoil_http_request_seconds", Help: "Time from the headers of a request to its answer, by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}, []string{"route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "counterfoil_http_panics_total", Help: "Handlers that panicked. Each is a fault of the server.",
		}),
	}
	m.registry.MustRegister(
		m.requests, m.seconds, m.panics,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("counterfoil_http_requests_in_progress", "Requests in progress.", func() float64 { return float64(s.inProgress.Load()) }),
		gauge("counterfoil_http_body_bytes", "Bytes of large bodies that are held.", func() float64 { return float64(s.bodyBytes.Load()) }),
		gauge("counterfoil_draining", "1 while the server is stopping.", func() float64 { return truth(s.draining.Load()) }),
		gauge("counterfoil_store_latched", "1 if the store has closed itself after a failed commit.", func() float64 { return truth(s.health.Health().Latched != nil) }),
		gauge("counterfoil_store_clock_refused", "1 if the clock is not trusted.", func() float64 { return truth(s.health.Health().Clock != nil) }),
		gauge("counterfoil_store_witness_behind", "1 if the witness cannot be written: a rollback of the store would not be noticed.", func() float64 { return truth(s.health.Health().Witness != nil) }),
		gauge("counterfoil_store_generation", "Generation of the store; rises with each recovery.", func() float64 { return float64(s.health.Health().Generation) }),
		gauge("counterfoil_store_waiting_batches", "Batches that wait for a group.", func() float64 { return float64(s.health.Health().Waiting) }),
		counter("counterfoil_store_unreadable_total", "Reads of records that are damaged or sealed under unknown keys.", func() float64 { return float64(s.health.Health().Unreadable) }),
		counter("counterfoil_store_unknown_total", "Batches whose outcome was unknown.", func() float64 { return float64(s.health.Health().Unknown) }),
		counter("counterfoil_operations_late_completions_total", "Completions that came after an operator had resolved that the effect did not happen: each is an effect that nobody counted on.",
			func() float64 { return float64(s.core.Operations.Stats().LateCompletions) }),
		gauge("counterfoil_store_swept_timestamp_seconds", "When the sweeper last finished a pass.", func() float64 { return float64(s.health.Health().SweptAt) / 1000 }),
	)
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func counter(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// observe counts a finished exchange.
func (m *metrics) observe(x *exchange, took time.Duration) {
	route := x.pattern()
	m.requests.WithLabelValues(route, x.outcome).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// page answers /metrics in the text format of Prometheus.
func (m *metrics) page(x *exchange) error {
	x.Header().Set("Cache-Control", "no-store")
	m.handler.ServeHTTP(x, x.r)
	return nil
}
