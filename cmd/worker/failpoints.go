//go:build failpoints

package main

import (
	"os"

	"github.com/entail-fleet/entail/internal/failpoint"
)

func init() {
	failpoint.Arm(os.Getenv("ENTAIL_FAILPOINT"), os.Getenv("ENTAIL_FAILPOINT_DIR"))
}
