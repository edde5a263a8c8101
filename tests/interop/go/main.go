// Command interop runs Go's Kafka clients against a broker and fails loudly on the first thing that is not as it
// should be: interop BOOTSTRAP CASE [VERSION].
package main

import (
	"fmt"
	"math/rand"
	"os"
)

var cases = map[string]func(bootstrap, version string){
	"franz-basic":       franzBasic,
	"franz-groups":      franzGroups,
	"franz-transaction": franzTransaction,
	"franz-admin":       franzAdmin,
	"sarama-basic":      saramaBasic,
	"sarama-groups":     saramaGroups,
	"sarama-admin":      saramaAdmin,
	"kafka-go":          kafkaGo,
}

func main() {
	bootstrap, name, version := os.Args[1], os.Args[2], ""
	if len(os.Args) > 3 {
		version = os.Args[3]
	}
	run, ok := cases[name]
	require(ok, "no case %s", name)
	run(bootstrap, version)
	fmt.Println("ok", name, version)
}

func unique(prefix string) string {
	return fmt.Sprintf("%s-%012x", prefix, rand.Int63()&0xffffffffffff)
}

func check(err error, what string, args ...any) {
	if err != nil {
		fail("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

func require(ok bool, what string, args ...any) {
	if !ok {
		fail(what, args...)
	}
}

func fail(what string, args ...any) {
	fmt.Fprintf(os.Stderr, what+"\n", args...)
	os.Exit(1)
}
