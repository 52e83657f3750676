// Package policytest makes the permits that tests of a fence need. A permit can
// only come from policy.Decide, so it is decided here as everywhere: for a call in
// the open turn of a session whose log was composed and folded.
package policytest
