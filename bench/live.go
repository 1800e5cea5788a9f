package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Live records of a small and of a large store.
const (
	fewLive  = 10_000
	manyLive = 1_000_000
)

// manyBesideFew prints what claims and spends reach in a store with many live records beside one with few, each on a server of
// its own that start makes.
func (b bench) manyBesideFew(ctx context.Context, start func() (url string, err error)) error {
	var urls []string
	for _, live := range []int64{fewLive, manyLive} {
		url, err := start()
		if err != nil {
			return err
		}
		if err := fill(ctx, url, live); err != nil {
			return err
		}
		urls = append(urls, url)
	}
	for _, work := range []string{workClaims, workSpends} {
		var few, many []float64
		for range b.runs {
			for i, rates := range []*[]float64{&few, &many} {
				w, err := b.workOn(urls[i], work, 256)
				if err != nil {
					return err
				}
				*rates = append(*rates, w.Rate)
			}
		}
		fmt.Printf("%-28s %8d %14.0f %14.0f %7.2fx\n", work+" at 10⁶ beside 10⁴", 256, median(few), median(many), median(many)/median(few))
	}
	return nil
}

// fill claims so many records.
func fill(ctx context.Context, url string, records int64) error {
	s, err := storeOn(ctx, url)
	if err != nil {
		return err
	}
	claim := claimOn(ctx, s)
	var begun atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 1024 {
		wg.Go(func() {
			for begun.Add(1) <= records && failed.Load() == nil {
				if err := claim(); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return s.Close()
}
