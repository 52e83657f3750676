//go:build mutate_rerun

package agent

const runsAgain = true
