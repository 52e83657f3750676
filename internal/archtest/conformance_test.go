package archtest_test

import (
	"regexp"
	"strings"
	"testing"
)

// Counts that the conformance list must keep.
const (
	allCases     = 205
	seedCases    = 35
	mostNotApply = 40
)

var (
	caseRow  = regexp.MustCompile(`^\| ([A-Z]{3}-\d{2})(\*?) \| (test|open|n/a) \| (.+) \|$`)
	caseName = regexp.MustCompile(`(INH|DSC|CON|INT|RPT|DRN|SET|LST|SBX|FSF|ESC|APR|PRE|SES|CLO|PER|TEL|ARV)_?(\d{2})(?:[^\d]|$)`)
	clause   = regexp.MustCompile(`SPEC \d`)
)

// TestConformanceListsEveryCase reads docs/conformance.md: all cases once, each
// with a test that exists, or what it is open for, or the clause by which it does
// not apply; and every case id in a test's name is in the row it says.
func TestConformanceListsEveryCase(t *testing.T) {
	t.Parallel()
	exist := testFuncs(t)
	named := map[string]map[string]bool{} // case -> tests its row names
	seeds, notApply := 0, 0
	for line := range strings.Lines(readDoc(t, "docs/conformance.md")) {
		m := caseRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		id, star, state, where := m[1], m[2], m[3], m[4]
		if named[id] != nil {
			t.Errorf("%s stands twice", id)
		}
		named[id] = map[string]bool{}
		for _, n := range namedTest.FindAllStringSubmatch(where, -1) {
			named[id][n[1]] = true
			if !exist[n[1]] {
				t.Errorf("%s names %s, which does not exist", id, n[1])
			}
		}
		if star != "" {
			seeds++
		}
		switch {
		case state == "test" && len(named[id]) == 0:
			t.Errorf("%s is held by no test", id)
		case state == "n/a" && (star != "" || !clause.MatchString(where)):
			t.Errorf("%s does not apply: %q must name a clause, and no case of the source decision may be left out", id, where)
		}
		if state == "n/a" {
			notApply++
		}
	}
	if len(named) != allCases || seeds != seedCases || notApply > mostNotApply {
		t.Errorf("%d cases, %d of the source decision, %d do not apply; want %d, %d, at most %d", len(named), seeds, notApply, allCases, seedCases, mostNotApply)
	}
	for name := range exist {
		for _, m := range caseName.FindAllStringSubmatch(name, -1) {
			if id := m[1] + "-" + m[2]; !named[id][name] {
				t.Errorf("%s is not in the row of %s", name, id)
			}
		}
	}
}
