// Package statetest helps to test what stands on package state.
//
// [Model] is the rules of Counterfoil a second time, written plainly and
// without a look at Decide: no shards, no seals, nothing that is fast. Whatever
// runs batches, be it Decide alone, a store, or an engine under one, must give
// the answers that a Model gives. [Draw] draws batches that make sense to a
// Model, and many that do not. [Plain] is the smallest store there is.
package statetest
