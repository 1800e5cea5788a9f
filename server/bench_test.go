package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/counterfoil/counterfoil/api"
)

// BenchmarkBeginComplete is a pair of requests from reading their bodies to their answers, without a network.
func BenchmarkBeginComplete(b *testing.B) {
	r := prepared(b, Limits{})
	var n atomic.Int64
	post := func(path, body string) []byte {
		req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(body)))
		req.Header.Set("Authorization", "Bearer "+r.admin)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.server.ServeHTTP(w, req)
		if w.Code >= 400 {
			b.Error(w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var begun api.BeginAnswer
			if err := json.Unmarshal(post("/v1/operations", fmt.Sprintf(`{"key":"order-%d","request":{"b":1,"a":[1,2]}}`, n.Add(1))), &begun); err != nil {
				b.Error(err)
				return
			}
			post("/v1/operations/"+string(begun.Operation.ID)+"/complete", `{"token":"`+string(begun.Operation.Token)+`","receipt":{"status":200,"body":{"paid":true}}}`)
		}
	})
}
