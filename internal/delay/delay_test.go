package delay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/entail-fleet/entail/internal/delay"
)

func TestForLastsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !delay.For(t.Context(), time.Hour) || time.Since(start) != time.Hour {
			t.Errorf("it lasted %v, want an hour", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		if delay.For(ctx, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("cut short it lasted %v, want a minute", time.Since(start))
		}
	})
}
