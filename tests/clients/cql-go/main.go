// gocql against CQL_ADDR: every test runs over versions 3 and 4 of the protocol.
package main

import (
	"fmt"
	"math/big"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

const (
	keyspace  = "go_suite"
	pagedRows = 5_000
)

func connect(version int, space string) *gocql.Session {
	cluster := gocql.NewCluster(os.Getenv("CQL_ADDR"))
	cluster.ProtoVersion = version
	cluster.Keyspace = space
	cluster.Timeout = time.Minute
	cluster.ConnectTimeout = time.Minute
	return must(cluster.CreateSession())
}

func equal(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %#v, wanted %#v", got, wanted))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("error: %v", err))
	}
	return value
}

func done(err error) {
	if err != nil {
		panic(fmt.Sprintf("error: %v", err))
	}
}

func refused(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("got error %v, wanted one with %q", err, text))
	}
}

func everyType(s *gocql.Session, version int) {
	done(s.Query(`CREATE TABLE every_type (k int PRIMARY KEY, a ascii, b bigint, c blob, d boolean,
		f decimal, g double, i float, l smallint, m text, o timestamp, p timeuuid, q tinyint, t varint,
		u list<int>, v set<text>, w map<text, int>)`).Exec())
	id := must(gocql.ParseUUID("50554d6e-29bb-11e5-b345-feff819cdc9f"))
	at := time.Date(2020, 2, 29, 12, 34, 56, 789000000, time.UTC)
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	done(s.Query(`INSERT INTO every_type (k, a, b, c, d, f, g, i, l, m, o, p, q, t, u, v, w)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		1, "ascii", int64(-1<<63), []byte{0, 255}, true, inf.NewDec(-12345, 2), 1e-300, float32(0.5),
		int16(-32768), "grüße 万", at, id, int8(-128), huge, []int{3, 1, 2}, []string{"a", "b"},
		map[string]int{"x": 1}).Exec())
	row := map[string]any{}
	done(s.Query("SELECT * FROM every_type WHERE k = 1").MapScan(row))
	equal(row["a"], "ascii")
	equal(row["b"], int64(-1<<63))
	equal(row["c"], []byte{0, 255})
	equal(row["d"], true)
	equal(row["f"].(*inf.Dec).Cmp(inf.NewDec(-12345, 2)), 0)
	equal(row["g"], 1e-300)
	equal(row["i"], float32(0.5))
	equal(row["l"], int16(-32768))
	equal(row["m"], "grüße 万")
	equal(row["o"].(time.Time).Equal(at), true)
	equal(row["p"], id)
	equal(row["q"], int8(-128))
	equal(row["t"].(*big.Int).Cmp(huge), 0)
	equal(row["u"], []int{3, 1, 2})
	equal(row["v"], []string{"a", "b"})
	equal(row["w"], map[string]int{"x": 1})
}

func pages(s *gocql.Session, version int) {
	done(s.Query("CREATE TABLE paged (p int, c int, PRIMARY KEY (p, c))").Exec())
	for from := 0; from < pagedRows; from += 500 {
		batch := s.NewBatch(gocql.UnloggedBatch)
		for c := from; c < from+500; c++ {
			batch.Query("INSERT INTO paged (p, c) VALUES (?, ?)", 1, c)
		}
		done(s.ExecuteBatch(batch))
	}
	iter := s.Query("SELECT c FROM paged WHERE p = 1").PageSize(77).Iter()
	var c, count int
	for iter.Scan(&c) {
		equal(c, count)
		count++
	}
	done(iter.Close())
	equal(count, pagedRows)
}

func oneWinner(s *gocql.Session, version int) {
	done(s.Query("CREATE TABLE race (k int PRIMARY KEY, winner int)").Exec())
	var wait sync.WaitGroup
	var guard sync.Mutex
	winners := 0
	for racer := 0; racer < 16; racer++ {
		wait.Add(1)
		go func(racer int) {
			defer wait.Done()
			row := map[string]any{}
			applied, err := s.Query("INSERT INTO race (k, winner) VALUES (1, ?) IF NOT EXISTS", racer).MapScanCAS(row)
			guard.Lock()
			defer guard.Unlock()
			if err == nil && applied {
				winners++
			}
		}(racer)
	}
	wait.Wait()
	equal(winners, 1)
}

func errorsAndSchema(s *gocql.Session, version int) {
	refused(s.Query("SELECT * FROM nope").Exec(), "nope")
	refused(s.Query("SELEC 1").Exec(), "line 1")
	done(s.Query("CREATE TABLE seen (a int, b text, v int, PRIMARY KEY (a, b))").Exec())
	refused(s.Query("CREATE TABLE seen (a int PRIMARY KEY)").Exec(), "seen")
	metadata := must(s.KeyspaceMetadata(keyspace))
	table := metadata.Tables["seen"]
	equal(table.PartitionKey[0].Name, "a")
	equal(table.ClusteringColumns[0].Name, "b")
	equal(len(table.Columns), 3)
}

func reconnects(s *gocql.Session, version int) {
	done(s.Query("CREATE TABLE kept (k int PRIMARY KEY)").Exec())
	other := connect(version, keyspace)
	done(other.Query("INSERT INTO kept (k) VALUES (1)").Exec())
	other.Close()
	var k int
	done(s.Query("SELECT k FROM kept").Scan(&k))
	equal(k, 1)
}

var tests = []struct {
	name string
	run  func(*gocql.Session, int)
}{
	{"everyType", everyType},
	{"pages", pages},
	{"oneWinner", oneWinner},
	{"errorsAndSchema", errorsAndSchema},
	{"reconnects", reconnects},
}

func attempt(name string, version int, run func(*gocql.Session, int)) (passed bool) {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Printf("FAILED %s v%d: %v\n%s", name, version, reason, debug.Stack())
			passed = false
		}
	}()
	admin := connect(version, "")
	defer admin.Close()
	done(admin.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec())
	done(admin.Query("CREATE KEYSPACE " + keyspace +
		" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec())
	session := connect(version, keyspace)
	defer session.Close()
	run(session, version)
	fmt.Printf("ok %s v%d\n", name, version)
	return true
}

func main() {
	passed, failed := 0, 0
	for _, version := range []int{3, 4} {
		for _, test := range tests {
			if attempt(test.name, version, test.run) {
				passed++
			} else {
				failed++
			}
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
