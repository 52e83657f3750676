package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// held is a container that was given a file of the keys and, as a worker is, a
// workspace.
func held(id, file, workspace string) container {
	c := container{ID: id, Name: "/fleet_" + id + "_1", Mounts: []mount{{file, "/run/entail/credentials.json"}}}
	if workspace != "" {
		c.Mounts = append(c.Mounts, mount{workspace, fleetWorkspace})
	}
	return c
}

// The demo stops, starts and kills containers: it must know each of them, and take
// no other for one of the fleet.
func TestSeatsAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	made := fleet{brokers: []string{"nats1", "nats2"}, coordinators: []string{"c1"}, workers: []string{"w1", "w2"}, partitions: 2}
	if err := made.init(dir, "tester"); err != nil {
		t.Fatal(err)
	}
	keys, err := readFleetKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	if keys.brokers != 2 || keys.port != "4222" {
		t.Errorf("the keys are for %d brokers at port %s, want 2 at 4222", keys.brokers, keys.port)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	whole := []container{
		held("w2", in("worker-w2.json"), "/srv/work"), held("nats1", in("broker"), ""), held("c1", in("coordinator-c1.json"), ""),
		held("nats2", in("broker"), ""), held("w1", in("worker-w1.json"), "/srv/work"),
	}
	without := func(id string) []container {
		return slices.DeleteFunc(slices.Clone(whole), func(c container) bool { return c.ID == id })
	}
	tests := []struct {
		name  string
		found []container
		want  string // the error; empty for a whole fleet
	}{
		{"whole", whole, ""},
		{"beside another container", append(slices.Clone(whole), held("cli", in("token"), "/srv/work")), ""},
		{"a broker is missing", without("nats2"), "1 containers have " + in("broker") + ", want 2"},
		{"a coordinator is missing", without("c1"), "0 containers have " + in("coordinator-c1.json")},
		{"a worker is missing", without("w2"), "0 containers have " + in("worker-w2.json")},
		{"a key is held twice", append(slices.Clone(whole), held("w3", in("worker-w1.json"), "/srv/work")), "2 containers have " + in("worker-w1.json")},
		{"another workspace", append(without("w2"), held("w2", in("worker-w2.json"), "/srv/other")), "worker w2 does not share /workspace"},
		{"no workspace", append(without("w1"), held("w1", in("worker-w1.json"), "")), "worker w1 does not share /workspace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seats, workspace, err := keys.seat(tt.found)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			want := []seat{
				{rankBroker, "fleet_nats1_1", "nats1"},
				{rankBroker, "fleet_nats2_1", "nats2"},
				{rankCoordinator, "c1", "c1"},
				{rankWorker, "w1", "w1"},
				{rankWorker, "w2", "w2"},
			}
			if diff := cmp.Diff(want, seats, cmp.AllowUnexported(seat{})); err != nil || diff != "" || workspace != "/srv/work" {
				t.Errorf("error %v, workspace %q, seats (-want +got):\n%s", err, workspace, diff)
			}
		})
	}
}

func TestDemoRefusesWhatIsNoFleet(t *testing.T) {
	t.Parallel()
	if _, err := readFleetKeys(t.TempDir()); err == nil || !strings.Contains(err.Error(), "entail keys init") {
		t.Errorf("an empty directory: %v", err)
	}
}

// One process that survived a restart is enough for the step to fail.
func TestReplaced(t *testing.T) {
	t.Parallel()
	before := []living{{"c1", 10, "a"}, {"w1", 11, "a"}}
	tests := []struct {
		name  string
		after []living
		want  bool
	}{
		{"each anew", []living{{"c1", 20, "b"}, {"w1", 21, "b"}}, true},
		{"one survived", []living{{"c1", 20, "b"}, {"w1", 11, "a"}}, false},
		{"one has its old number", []living{{"c1", 20, "b"}, {"w1", 11, "b"}}, false},
		{"one is missing", []living{{"c1", 20, "b"}}, false},
		{"one is another", []living{{"c1", 20, "b"}, {"w2", 21, "b"}}, false},
	}
	for _, tt := range tests {
		if got := replaced(before, tt.after); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
