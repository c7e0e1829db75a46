// go-redis against ADDR: every test runs over RESP2 and over RESP3.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pipelineCommands = 10_000
	scanKeys         = 10_000
	// A busy machine may halt the server or this process for longer than the seconds of the defaults.
	patience = time.Minute
)

var ctx = context.Background()

func connect(protocol int, change func(*redis.Options)) *redis.Client {
	options := &redis.Options{
		Addr: os.Getenv("ADDR"), Protocol: protocol, MaxRetries: -1,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
	}
	if change != nil {
		change(options)
	}
	return redis.NewClient(options)
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

func refused(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("got error %v, wanted one with %q", err, text))
	}
}

func sorted(values []string) []string {
	sort.Strings(values)
	return values
}

func everyType(r *redis.Client, _ int) {
	equal(must(r.Set(ctx, "k", "v", 0).Result()), "OK")
	equal(must(r.Get(ctx, "k").Result()), "v")
	equal(r.Get(ctx, "missing").Err(), redis.Nil)
	equal(must(r.SetNX(ctx, "k", "w", 0).Result()), false)
	equal(must(r.MGet(ctx, "k", "missing").Result()), []any{"v", nil})
	equal(must(r.IncrBy(ctx, "n", 42).Result()), int64(42))
	equal(must(r.IncrByFloat(ctx, "n", 0.5).Result()), 42.5)
	equal(must(r.HSet(ctx, "h", "f", "v", "g", "").Result()), int64(2))
	equal(must(r.HGetAll(ctx, "h").Result()), map[string]string{"f": "v", "g": ""})
	equal(must(r.RPush(ctx, "l", "a", "b", "c").Result()), int64(3))
	equal(must(r.LRange(ctx, "l", 0, -1).Result()), []string{"a", "b", "c"})
	equal(must(r.LMove(ctx, "l", "m", "LEFT", "RIGHT").Result()), "a")
	equal(must(r.SAdd(ctx, "s", "1", "2").Result()), int64(2))
	equal(sorted(must(r.SMembers(ctx, "s").Result())), []string{"1", "2"})
	equal(must(r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result()), int64(2))
	equal(must(r.ZScore(ctx, "z", "b").Result()), 2.5)
	equal(must(r.ZRangeWithScores(ctx, "z", 0, -1).Result()), []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}})
	equal(must(r.ZPopMin(ctx, "z").Result()), []redis.Z{{Score: 1, Member: "a"}})
	equal(must(r.PExpire(ctx, "z", 100_000_000_000).Result()), true)
	equal(must(r.Persist(ctx, "z").Result()), true)
	equal(must(r.Type(ctx, "z").Result()), "zset")
	equal(must(r.Copy(ctx, "z", "y", 0, false).Result()), int64(1))
	equal(must(r.Rename(ctx, "y", "x").Result()), "OK")
	equal(must(r.Del(ctx, "k", "n", "h", "l", "m", "s", "z", "x").Result()), int64(8))
	refused(r.Do(ctx, "NONSENSE").Err(), "unknown command")
	must(r.LPush(ctx, "l", "a").Result())
	refused(r.Get(ctx, "l").Err(), "WRONGTYPE")
}

func pipelinesKeepOrder(r *redis.Client, _ int) {
	commands := must(r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := 0; number < pipelineCommands/2; number++ {
			pipe.Set(ctx, fmt.Sprint("k", number), number, 0)
			pipe.Get(ctx, fmt.Sprint("k", number))
		}
		return nil
	}))
	equal(len(commands), pipelineCommands)
	for number := 0; number < pipelineCommands/2; number++ {
		equal(commands[2*number].(*redis.StatusCmd).Val(), "OK")
		equal(commands[2*number+1].(*redis.StringCmd).Val(), fmt.Sprint(number))
	}
}

func anyByteIsSafe(r *redis.Client, _ int) {
	var blob []byte
	for index := 0; index < 1280; index++ {
		blob = append(blob, byte(index))
	}
	must(r.Set(ctx, string(blob), blob, 0).Result())
	equal(bytes.Equal(must(r.Get(ctx, string(blob)).Bytes()), blob), true)
	must(r.HSet(ctx, "h", "\r\n\x00", blob).Result())
	equal(must(r.HGet(ctx, "h", "\r\n\x00").Result()), string(blob))
}

func transactions(r *redis.Client, protocol int) {
	commands := must(r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "a", 1, 0)
		pipe.Incr(ctx, "a")
		return nil
	}))
	equal(commands[1].(*redis.IntCmd).Val(), int64(2))
	other := connect(protocol, nil)
	defer other.Close()
	err := r.Watch(ctx, func(tx *redis.Tx) error {
		must(other.Set(ctx, "a", "theirs", 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "a", "mine", 0)
			return nil
		})
		return err
	}, "a")
	equal(errors.Is(err, redis.TxFailedErr), true)
	equal(must(r.Get(ctx, "a").Result()), "theirs")
}

func scanCoversAllKeys(r *redis.Client, _ int) {
	must(r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := 0; number < scanKeys; number++ {
			pipe.Set(ctx, fmt.Sprint("key:", number), "v", 0)
		}
		return nil
	}))
	seen := map[string]bool{}
	iterator := r.Scan(ctx, 0, "key:*", 100).Iterator()
	for iterator.Next(ctx) {
		seen[iterator.Val()] = true
	}
	equal(iterator.Err(), nil)
	equal(len(seen), scanKeys)
	equal(must(r.DBSize(ctx).Result()), int64(scanKeys))
}

func theServerAndItsClients(r *redis.Client, protocol int) {
	named := connect(protocol, func(options *redis.Options) { options.ClientName, options.DB = "suite", 3 })
	defer named.Close()
	equal(must(named.ClientGetName(ctx).Result()), "suite")
	equal(strings.Contains(must(r.ClientList(ctx).Result()), "name=suite "), true)
	equal(must(named.ClientInfo(ctx).Result()).DB, 3)
	equal(must(named.ClientID(ctx).Result()) > 0, true)
	equal(strings.Contains(must(r.Info(ctx).Result()), "redis_version:"), true)
	equal(must(r.ConfigGet(ctx, "maxmemory").Result()), map[string]string{"maxmemory": "0"})
	commands := must(r.Command(ctx).Result())
	equal([]int{int(commands["get"].Arity), int(commands["mset"].StepCount)}, []int{2, 2})
	equal(commands["get"].ReadOnly, true)
	equal(must(r.CommandGetKeys(ctx, "MSET", "a", "1", "b", "2").Result()), []string{"a", "b"})
	equal(must(r.Time(ctx).Result()).Unix() > 1_600_000_000, true)
	must(r.SlowLogGet(ctx, 5).Result())
}

func aWrongPasswordIsRefused(r *redis.Client, protocol int) {
	must(r.ConfigSet(ctx, "requirepass", "secret").Result())
	defer func() { must(r.ConfigSet(ctx, "requirepass", "").Result()) }()
	ping := func(user, password string) error {
		client := connect(protocol, func(options *redis.Options) { options.Username, options.Password = user, password })
		defer client.Close()
		return client.Ping(ctx).Err()
	}
	refused(ping("", ""), "NOAUTH")
	refused(ping("", "wrong"), "WRONGPASS")
	equal(ping("", "secret"), nil)
	equal(ping("default", "secret"), nil)
}

// run says whether the test passed: a panic is a failure.
func run(name string, body func(*redis.Client, int), protocol int) (passed bool) {
	client := connect(protocol, nil)
	defer client.Close()
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Printf("FAILED %s: %v\n%s", name, reason, debug.Stack())
			return
		}
		fmt.Println("ok", name)
		passed = true
	}()
	must(client.FlushAll(ctx).Result())
	body(client, protocol)
	must(client.FlushAll(ctx).Result())
	return
}

func main() {
	tests := []struct {
		name string
		body func(*redis.Client, int)
	}{
		{"every type", everyType},
		{"pipelines keep order", pipelinesKeepOrder},
		{"any byte is safe", anyByteIsSafe},
		{"transactions", transactions},
		{"scan covers all keys", scanCoversAllKeys},
		{"the server and its clients", theServerAndItsClients},
		{"a wrong password is refused", aWrongPasswordIsRefused},
	}
	passed, failed := 0, 0
	for _, protocol := range []int{2, 3} {
		for _, test := range tests {
			if run(fmt.Sprintf("%s (RESP%d)", test.name, protocol), test.body, protocol) {
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
