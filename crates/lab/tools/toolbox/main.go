// Command toolbox answers the questions that tests ask from inside a Pod: what does a name resolve to, does an address
// answer, how large is a disk really.
//
//	toolbox serve                answer every HTTP request on port 8080 with this Pod's name and the caller's address
//	toolbox get URL              print the body of a page
//	toolbox lookup NAME          print the addresses of a name, one a line
//	toolbox df PATH              print the size and the free space of a file system, in bytes
//	toolbox fill FILE [BYTES]    write a file until that many bytes are written or the disk is full, print how many
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "toolbox:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "serve" {
		return serve()
	}
	if len(args) < 2 {
		return errors.New("usage: serve | get URL | lookup NAME | df PATH | fill FILE [BYTES]")
	}
	switch args[0] {
	case "get":
		return get(args[1])
	case "lookup":
		return lookup(args[1])
	case "df":
		return df(args[1])
	case "fill":
		limit := uint64(1 << 62)
		if len(args) > 2 {
			var err error
			if limit, err = strconv.ParseUint(args[2], 10, 64); err != nil {
				return err
			}
		}
		return fill(args[1], limit)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Println("serving on :8080")
	return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s %s\n", name, caller)
	}))
}

func get(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	for _, address := range addresses {
		fmt.Println(address)
	}
	return err
}

func df(path string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return err
	}
	size := uint64(stat.Bsize)
	fmt.Println(stat.Blocks*size, stat.Bavail*size)
	return nil
}

// fill succeeds when the disk is full: that is what it is asked to find out.
func fill(path string, limit uint64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, syscall.ENOSPC) {
		fmt.Println(0, "full")
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	written := uint64(0)
	for written < limit {
		n, err := file.Write(block[:min(uint64(len(block)), limit-written)])
		written += uint64(n)
		if errors.Is(err, syscall.ENOSPC) {
			fmt.Println(written, "full")
			return nil
		}
		if err != nil {
			return err
		}
	}
	fmt.Println(written)
	return file.Sync()
}
