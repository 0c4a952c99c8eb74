package protocol

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// defaults are the parameters that a setting does not name.
const defaults = "CALLS=2 CALLS1=2 UNK=0 CRASH=0 TICKS=0 SETBACK=0 NA=2 APB=1 AUTO=0 SKEW=0 PROOF=1 BATCH=0"

// searches are the settings of the model that are searched completely. The first one is that of the short form.
var searches = []string{
	"UNK=1 AUTO=1 CALLS1=1",
	"UNK=1 TICKS=1 AUTO=2 SKEW=1 CALLS1=1",
	"UNK=1 AUTO=1 APB=2",
	"UNK=1 NA=3 AUTO=1 CALLS1=1",
	"UNK=1 SETBACK=1 CALLS1=1",
	"UNK=1 SETBACK=1 CALLS1=1 PROOF=0",
	"UNK=2 CRASH=1 CALLS1=1",
	"UNK=1 CRASH=1 SETBACK=1 CALLS1=1",
}

// pageSearches are those of the pages.
var pageSearches = []string{
	"UNK=1",
	"BATCH=1",
	"CALLS=3 UNK=1",
}

// A mutant breaks one rule of the model; spin must find a violated law in the setting.
type mutant struct{ name, old, new, setting string }

var mutants = []mutant{
	{"the first holding is not guarded", "     guard(G(T.h));\n", "     skip;\n", "UNK=1"},
	{"a held answer does not become the first holding", "if :: T.op==ASSIGN && !T.d.first[pick] ->", "if :: false ->", "AUTO=1"},
	{"the lowest address in place of the first holding", "(pick==NONE || T.d.first[k])", "pick==NONE", "AUTO=1"},
	{"the record of the first holding stays behind", "if :: T.w & T.dg[i] -> st.rev[G(i)]=0", "if :: false -> st.rev[G(i)]=0", ""},
	{"the end of the former first holding is not written", "T.w = T.w | T.dg[T.h]; T.g = T.g | T.dg[T.h]", "skip", "UNK=1 TICKS=1 AUTO=2 SKEW=1"},
	{"an assignment trusts a stale block", "T.fresh=1; guard(BL(pick));", "T.fresh=1; T.g = T.g & ~((1<<NB)-1);", ""},
	{"a takeover trusts a stale block", "T.fresh=1; guard(BL(pick));", "T.fresh=1; if :: c[e].own[BL(pick)]!=e && T.d.own[BL(pick)]==e -> T.g = T.g & ~(1<<BL(pick)) :: else -> guard(BL(pick)) fi;", "TICKS=1 AUTO=2 CALLS=3 CALLS1=2"},
	{"a takeover of a block in use", "T.d.own[BL(k)]!=e && EMPTY(T.d,BL(k)) && T.d.since[BL(k)]+1<=tn", "T.d.own[BL(k)]!=e", ""},
	{"a release trusts a stale block", "if :: lst & (1<<k) -> guard(BL(k)) :: else fi;", "", "CALLS=3 CALLS1=2"},
	{"a release ignores the sequence number", "(T.op==RELHANDLE || T.d.seq[k]==s)", "true", "CALLS=3 CALLS1=2"},
	{"a release ignores handle and sequence number", "T.d.hold[k]==T.h && (T.op==RELHANDLE || T.d.seq[k]==s)", "T.d.hold[k]!=0 && (T.op==RELIP || T.d.hold[k]==T.h)", "CALLS=3 CALLS1=2"},
	{"a release by the index alone", "T.d.hold[k]==T.h && (T.op==RELHANDLE ||", "(T.op==RELHANDLE || T.d.hold[k]==T.h) && (T.op==RELHANDLE ||", "CALLS=3 CALLS1=2"},
	{"an answer of what is held trusts a stale block", "if :: lst & (1<<k) -> guard(BL(k));      /*", "if :: lst & (1<<k) -> skip;      /*", ""},
	{"no fence", "lf[e]=i+1; lr[e]=T.d.rev[i]", "lf[e]=0", "UNK=1"},
	{"a fence on another record", "lf[e]=i+1; lr[e]=T.d.rev[i]", "lf[e]=2-i; lr[e]=T.d.rev[1-i]", "UNK=1"},
	{"a fence that only reads", "if :: st.rev[k]!=lr[e] -> lf[e]=0", "if :: true -> lf[e]=0", "UNK=1"},
	{"a fence of unknown outcome counts", ":: unk>0 -> unk--; gaveup(e,op,h); goto idle fi;", ":: unk>0 -> unk--; lf[e]=0; gaveup(e,op,h); goto idle fi;", "CALLS=3 CALLS1=2 UNK=2"},
	{"the request key is not guarded", "     guard(Q);\n", "     skip;\n", "UNK=1 AUTO=1"},
	{"a replay ignores the sequence number", "T.d.hold[k]==T.h && T.d.seq[k]==T.d.qs -> pick=k", "T.d.hold[k]==T.h -> pick=k", "CALLS=3 CALLS1=2 AUTO=1"},
	{"processes go on after a set-back", "repl[i]=newer[i];", "repl[i]=0;", "UNK=1 SETBACK=1"},
	{"late commits carry no proof of the past", "d_step { cpt(T,p[e]);", "d_step { cpt(T,p[e]); T.past=0;", "UNK=1 SETBACK=1"},
	{"a lease ends by a clock that is ahead", "T.d.until[k]+SKEW<=tn", "T.d.until[k]<=tn", "TICKS=1 AUTO=2 SKEW=1"},
	{"a renewal trusts a stale block", "T.a=NONE; guard(BL(a));", "T.a=NONE;", "TICKS=1 AUTO=2 CALLS=3 CALLS1=2"},
	{"a renewal ignores the sequence number", "if :: T.d.hold[a]==T.h && T.d.seq[a]==s -> T.d.until", "if :: T.d.hold[a]==T.h -> T.d.until", "TICKS=1 AUTO=2 CALLS=3 CALLS1=2"},
}

var pageMutants = []mutant{
	{"a claim does not expect the page", "write(4,4); T.d.v[2] = T.d.v[2] | (1<<b);", "write(4,4); T.g = T.g & 11; T.d.v[2] = T.d.v[2] | (1<<b);", ""},
	{"a removal does not expect the page", "if :: T.d.v[2]!=0 -> write(4,4) :: else -> write(4,0);", "if :: T.d.v[2]!=0 -> write(4,4); T.g = T.g & 11 :: else -> write(4,0); T.g = T.g & 11;", "CALLS=3"},
	{"a claim does not expect the floor", "T.g = T.g | 8; T.d.v[2]=0;", "T.d.v[2]=0;", "CALLS=3"},
	{"a claim does not expect that there is no block", "write(1<<b,1<<b); write(4,4);", "write(1<<b,1<<b); T.g = T.g & ~(1<<b); write(4,4);", ""},
	{"a removal trusts a stale block", "write(1<<b,0); T.d.m[2]", "write(1<<b,0); T.g = T.g & ~(1<<b); T.d.m[2]", "CALLS=3"},
	{"a removal does not raise the mark", "T.d.m[2]=MAX(T.d.m[2],T.d.m[b]); T.d.m[b]=0;", "T.d.m[b]=0;", ""},
	{"a page that goes does not leave its mark", "T.d.m[3]=MAX(T.d.m[2],T.d.m[3]);", "skip;", ""},
	{"a page that comes does not take the mark of its floor", "T.d.m[2]=T.d.m[3] :: else fi;", "T.d.m[2]=0 :: else fi;", ""},
	{"a block begins without the mark of its page", "T.d.m[b]=T.d.m[2]+1;", "T.d.m[b]=1;", ""},
	{"the second caller of a commit sees the state before the first", "if :: two -> plan(1,n)", "if :: two -> cpd(T.d,c[e]); plan(1,n)", "CALLS=1 BATCH=1"},
	{"the second caller of a commit drops what the first relies on", "if :: two -> plan(1,n)", "if :: two -> T.g=0; plan(1,n)", "BATCH=1"},
	{"a late commit does not verify", "T.w=p[e].w; check();", "T.w=p[e].w; ok=1;", "UNK=1"},
}

var states = regexp.MustCompile(`([0-9]+) states, stored`)

// search builds the search of a model in a setting, runs it, and returns what it prints.
func search(t *testing.T, model, setting string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.pml"), []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	generate := []string{"spin", "-a"}
	set := make(map[string]bool)
	for _, d := range strings.Fields(setting + " " + defaults) {
		if name, _, _ := strings.Cut(d, "="); !set[name] {
			set[name] = true
			generate = append(generate, "-D"+d)
		}
	}
	var out []byte
	for _, args := range [][]string{
		append(generate, "model.pml"),
		append([]string{"gcc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=4000", "-o", "pan", "pan.c"}, flags...),
		{"./pan", "-m200000"},
	} {
		run := exec.CommandContext(t.Context(), args[0], args[1:]...)
		run.Dir = dir
		var err error
		if out, err = run.CombinedOutput(); err != nil && args[0] != "./pan" {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	return string(out)
}

// model returns the text of a model. It skips the test where there is no spin.
func model(t *testing.T, file string) string {
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("SKIPPED, there is no spin here")
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// searched searches a model completely in some settings: no law is violated. The short form searches the first one.
func searched(t *testing.T, text string, settings []string) {
	for i, setting := range settings {
		if testing.Short() && i > 0 {
			break
		}
		out := search(t, text, setting)
		if n := states.FindStringSubmatch(out); n == nil || !strings.Contains(out, "errors: 0") || strings.Contains(out, "not completed") {
			t.Errorf("%s:\n%s", setting, out)
		} else {
			t.Logf("%s: %s states", setting, n[1])
		}
	}
}

// broken breaks each rule of a model: a search finds the violated law.
func broken(t *testing.T, text string, mutants []mutant) {
	for i, m := range mutants {
		if testing.Short() && i > 0 {
			break
		}
		if n := strings.Count(text, m.old); n != 1 {
			t.Errorf("%s: the text to change occurs %d times", m.name, n)
			continue
		}
		if out := search(t, strings.Replace(text, m.old, m.new, 1), m.setting); !strings.Contains(out, "assertion violated") {
			t.Errorf("%s: not found\n%s", m.name, out)
		} else {
			t.Logf("found: %s", m.name)
		}
	}
}

func TestModel(t *testing.T) { searched(t, model(t, "model.pml"), searches) }

func TestModelMutants(t *testing.T) { broken(t, model(t, "model.pml"), mutants) }

func TestPages(t *testing.T) { searched(t, model(t, "pages.pml"), pageSearches) }

func TestPagesMutants(t *testing.T) { broken(t, model(t, "pages.pml"), pageMutants) }
