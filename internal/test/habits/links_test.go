package habits

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// link is [text](target), as this repository writes them.
var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// notInAnchor is what a heading's anchor leaves out.
var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)

// anchored is an anchor that a document gives to a place which is no heading.
var anchored = regexp.MustCompile(`<a id="([^"]+)"></a>`)

// prose calls found for each line of a document that is not in a fenced block.
func prose(markdown string, found func(n int, line string)) {
	fenced, n := false, 0
	for line := range strings.Lines(markdown) {
		n++
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case !fenced:
			found(n, line)
		}
	}
}

// anchors are what the headings and the other marked places of a document can be linked by.
func anchors(markdown string) (list []string) {
	prose(markdown, func(_ int, line string) {
		for _, m := range anchored.FindAllStringSubmatch(line, -1) {
			list = append(list, m[1])
		}
		heading := strings.TrimLeft(line, "#")
		if heading != line && strings.HasPrefix(heading, " ") {
			heading = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			list = append(list, strings.ReplaceAll(heading, " ", "-"))
		}
	})
	return list
}

// brokenLinks complains of links within the repository that lead nowhere. read returns a
// document, or "" for what is there and is none.
func brokenLinks(name, text string, read func(path string) (string, error)) (complaints []string) {
	prose(text, func(n int, line string) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			doc, err := read(path)
			if err != nil || anchor != "" && !slices.Contains(anchors(doc), anchor) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: the link to %s leads nowhere: no such file, heading or anchor", name, n, m[1]))
			}
		}
	})
	return complaints
}

// readDocument reads a Markdown file of the repository; of anything else it says only whether it is
// there.
func readDocument(path string) (string, error) {
	if filepath.Ext(path) != ".md" {
		_, err := os.Stat(filepath.Join(root, path))
		return "", err
	}
	return readText(path)
}

func readText(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return string(text), err
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, name := range committed(t) {
		if filepath.Ext(name) != ".md" {
			continue
		}
		text, err := readDocument(name)
		if err != nil {
			continue // deleted but not yet staged
		}
		for _, complaint := range brokenLinks(name, text, readDocument) {
			t.Error(complaint)
		}
	}
}

// goFile is a Go file that a document names, with its path, its end, or alone.
var goFile = regexp.MustCompile("`([a-zA-Z0-9_./-]+\\.go)`")

// namedFiles complains of Go files that a document names and nobody has.
func namedFiles(name, text string, files []string) (complaints []string) {
	prose(text, func(n int, line string) {
		for _, m := range goFile.FindAllStringSubmatch(line, -1) {
			if !slices.ContainsFunc(files, func(file string) bool { return file == m[1] || strings.HasSuffix(file, "/"+m[1]) }) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: there is no file %s", name, n, m[1]))
			}
		}
	})
	return complaints
}

func TestNamedFilesExist(t *testing.T) {
	files := committed(t)
	for _, name := range files {
		if filepath.Ext(name) != ".md" {
			continue
		}
		if text, err := readText(name); err == nil {
			for _, complaint := range namedFiles(name, text, files) {
				t.Error(complaint)
			}
		}
	}
}

func TestNamedFilesExistCanFail(t *testing.T) {
	files := []string{"fanout/hub.go", "upstream/session/plan.go"}
	const text = "`hub.go` and `fanout/hub.go`\n`session/plan.go`\n`out/hub.go`, `lane.go`\n```\n`x.go`\n```\n"
	if got, want := places(namedFiles("a.md", text, files)), []string{"a.md:3", "a.md:3"}; !slices.Equal(got, want) {
		t.Errorf("complaints at %q, want %q", got, want)
	}
}

func TestLinksLeadSomewhereCanFail(t *testing.T) {
	read := func(path string) (string, error) {
		documents := map[string]string{"README.md": "# Top\n## What's `new`?\n", "docs/a.md": "# A\n- <a id=\"up-1\"></a>**UP-1 MUST** …\n", "bench": ""}
		if text, ok := documents[path]; ok {
			return text, nil
		}
		return "", os.ErrNotExist
	}
	for _, s := range []struct {
		name, text string
		want       []string
	}{
		{"a file", "[a](docs/a.md)", nil},
		{"a folder", "[b](bench)", nil},
		{"a heading", "[a](docs/a.md#a), [n](#whats-new)", nil},
		{"an anchor", "[UP-1](docs/a.md#up-1)", nil},
		{"elsewhere", "[x](https://example.com/none)", nil},
		{"in a block", "```\n[x](none)\n```\n", nil},
		{"no such file", "\n[x](none.md)", []string{"README.md:2"}},
		{"no such heading", "[a](docs/a.md#b)", []string{"README.md:1"}},
		{"no such anchor", "[UP-2](docs/a.md#up-2)", []string{"README.md:1"}},
		{"no such heading here", "[n](#whats-old)", []string{"README.md:1"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			if got := places(brokenLinks("README.md", s.text, read)); !slices.Equal(got, s.want) {
				t.Errorf("complaints at %q, want %q", got, s.want)
			}
		})
	}
}
