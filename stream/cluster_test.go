package stream_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/entail-fleet/entail/internal/natstest"
)

// anywhere are the tests that ask for a world, so that run on a cluster too.
var anywhere = []func(*testing.T){
	TestAppendRefusesWhatReadersWouldRefuse,
	TestBusyForEverIsAConflict,
	TestBusyIsTriedAgainWithTheSameExpectation,
	TestCallersThatStopWaiting,
	TestConflict,
	TestConflictEvaluatesThePreconditionAgain,
	TestDoneHoldsWhatReadersFold,
	TestEveryReadShowsTheSameRecord,
	TestExpectationOnTheWire,
	TestF1_BothCodesAreOneConflict,
	TestFollowGoesOnWhileRecordsCome,
	TestForbiddenPublishIsNamed,
	TestForeignSubjects,
	TestGenesisIsFoundWithoutItsHint,
	TestGenesisOnce,
	TestLiveness,
	TestLostAnswerIsFoundBelowLaterRecords,
	TestLostGenesisAnswerIsFound,
	TestLostRequestWithARivalIsAConflict,
	TestMergedChangesAreEvaluatedOneAfterTheOther,
	TestMergedRecordIsSplitAtItsLimit,
	TestMergedRefusalIsEvaluatedAgainAfterAConflict,
	TestPoke,
	TestQueueHandsOutAgainWhenTheLeaseRunsOut,
	TestQueueHandsOutInboxAndGenesisUntilAcknowledged,
	TestQueueLater,
	TestQueueWorkingKeepsTheLease,
	TestRacingWritersKeepOneChain,
	TestReadInPages,
	TestRecordOverItsLimitIsRefusedBeforeAnythingIsWritten,
	TestRefusalIsFinal,
	TestRootIsCreatedBehindPlantedRecords,
	TestServerTakesAnyFilter,
	TestSettingsChangeByCompareAndSet,
	TestSettingsUpdateEndsWithItsContext,
	TestSettingsUpdateSettlesALostAnswer,
	TestSettingsWatch,
	TestSpentBudgetIsUnknownNeverFailed,
	TestStoredHeadersAreNoServersAnswer,
	TestTailBelowOneSeenIsLoss,
	TestTailZeroIsNotBelievedWhenAReadFindsSomething,
	TestTailZeroNeedsAWitness,
	TestUnknownOutcomeIsSettled,
	TestWaitingChangesShareARecord,
	TestWitnessOfANewRootIsPastTheStream,
}

// shared is the cluster that each running test of clusters has started.
var shared sync.Map

// clusterOf is the cluster of the test that t is a part of, nil if it has none.
func clusterOf(t testing.TB) *natstest.Cluster {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	c, _ := shared.Load(top)
	cluster, _ := c.(*natstest.Cluster)
	return cluster
}

// share starts the cluster of a test, with room for that many worlds.
func share(t *testing.T, worlds int) {
	t.Helper()
	shared.Store(t.Name(), natstest.StartClusterConfig(t, natstest.ClusterConfig{Deployments: worlds + 1}))
	t.Cleanup(func() { shared.Delete(t.Name()) })
}

// What holds on one server holds on three replicas.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	share(t, 2*len(anywhere))
	for _, test := range anywhere {
		t.Run(nameOf(test), test)
	}
}

func nameOf(test func(*testing.T)) string {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// A test that asks for a world and is not run on a cluster has been forgotten.
func TestAnywhereHasEveryTestOfAWorld(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, test := range anywhere {
		listed[nameOf(test)] = true
	}
	calls := callsOf(t)
	const least = 40
	found := 0
	for name := range calls {
		if !strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "TestCluster") || !reaches(calls, name, "newWorld", map[string]bool{}) {
			continue
		}
		if found++; !listed[name] {
			t.Errorf("%s is not in the list", name)
		}
	}
	if found < least {
		t.Errorf("found %d tests of a world, there are %d at least", found, least)
	}
}

// callsOf says which functions each function of the package's tests names.
func callsOf(t *testing.T) map[string]map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			named := map[string]bool{}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if id, ok := call.Fun.(*ast.Ident); ok {
						named[id.Name] = true
					}
				}
				return true
			})
			calls[f.Name.Name] = named
		}
	}
	return calls
}

// reaches reports whether a function calls another one, directly or not.
func reaches(calls map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for name := range calls[from] {
		if name == to || reaches(calls, name, to, seen) {
			return true
		}
	}
	return false
}

// rounds scales a test: few by default, many where time is given, as to ./chaos.
func rounds(t *testing.T, few, many int) int {
	t.Helper()
	if os.Getenv("CHAOS_SECONDS") == "" {
		return few
	}
	return many
}
