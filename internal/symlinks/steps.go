// Package symlinks owns the way that a path takes over symbolic links, for whoever watches what the path leads to.
//
// It reads directories and links, and never opens a file. Limitation: what it returns holds at the time of the call.
package symlinks

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links a path may lead over.
const maxLinks = 40

// Steps are the names on which it depends what a path leads to: each symbolic link on the
// way, and the file. They are absolute, and the directory of each is free of links, as
// whoever watches that directory calls them. Where the way breaks off, the missing name is
// the last.
func Steps(path string) (names []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	at, rest := "/", path
	for links := 0; links <= maxLinks; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch name {
		case "":
			return names
		case ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		here := filepath.Join(at, name)
		info, err := os.Lstat(here)
		switch {
		case err != nil:
			return append(names, here)
		case info.Mode()&os.ModeSymlink != 0:
			links++
			names = append(names, here)
			target, err := os.Readlink(here)
			if err != nil {
				return names
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = target + "/" + rest
		case info.IsDir():
			at = here
		default:
			return append(names, here)
		}
	}
	return names
}
