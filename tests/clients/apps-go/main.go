// Applications in Go against ADDR: tasks on asynq, and client-side caching by rueidis.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/rueidis"
)

const (
	// A busy machine may halt the server or this process for a while.
	patience = time.Minute
	poll     = 2 * time.Millisecond
	tasks    = 500
	cached   = 200
	cacheTTL = time.Hour
)

var ctx = context.Background()

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

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("error: %v", err))
	}
}

// until polls for a state that another process reaches.
func until(what string, reached func() bool) {
	for started := time.Now(); !reached(); time.Sleep(poll) {
		if time.Since(started) > patience {
			panic("not reached: " + what)
		}
	}
}

func connection() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: os.Getenv("ADDR"), DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience}
}

// runs counts the runs of each task.
type runs struct {
	lock  sync.Mutex
	count map[string]int
}

func newRuns() *runs { return &runs{count: map[string]int{}} }

func (it *runs) add(task string) int {
	it.lock.Lock()
	defer it.lock.Unlock()
	it.count[task]++
	return it.count[task]
}

func (it *runs) total() int {
	it.lock.Lock()
	defer it.lock.Unlock()
	total := 0
	for _, count := range it.count {
		total += count
	}
	return total
}

// serve runs a worker until the returned function is called.
func serve(run func(context.Context, *asynq.Task) error, queues map[string]int) func() {
	server := asynq.NewServer(connection(), asynq.Config{
		Concurrency:              10,
		Queues:                   queues,
		StrictPriority:           true,
		LogLevel:                 asynq.FatalLevel,
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 10 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		GroupGracePeriod:         time.Second,
		GroupMaxSize:             5,
		GroupAggregator: asynq.GroupAggregatorFunc(func(group string, all []*asynq.Task) *asynq.Task {
			return asynq.NewTask("together", []byte(group+":"+strconv.Itoa(len(all))))
		}),
	})
	check(server.Start(asynq.HandlerFunc(run)))
	return server.Shutdown
}

func everyTaskIsRunOnce() {
	client, inspector := asynq.NewClient(connection()), asynq.NewInspector(connection())
	defer client.Close()
	defer inspector.Close()
	done := newRuns()
	run := func(_ context.Context, task *asynq.Task) error {
		done.add(string(task.Payload()))
		_, err := task.ResultWriter().Write(task.Payload())
		return err
	}
	for range 2 {
		defer serve(run, map[string]int{"default": 1})()
	}
	for number := range tasks {
		payload := []byte(strconv.Itoa(number))
		must(client.Enqueue(asynq.NewTask("count", payload), asynq.TaskID("t"+strconv.Itoa(number)), asynq.Retention(time.Hour)))
	}
	until("all are completed", func() bool { return must(inspector.GetQueueInfo("default")).Completed == tasks })
	equal(len(done.count), tasks)
	equal(done.total(), tasks)
	info := must(inspector.GetTaskInfo("default", "t7"))
	equal(string(info.Result), "7")
	_, err := client.Enqueue(asynq.NewTask("count", nil), asynq.TaskID("t7"))
	equal(errors.Is(err, asynq.ErrTaskIDConflict), true)
}

func aFailedTaskIsTriedAgainAndArchived() {
	client, inspector := asynq.NewClient(connection()), asynq.NewInspector(connection())
	defer client.Close()
	defer inspector.Close()
	done := newRuns()
	defer serve(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "never" || done.add("twice") < 3 {
			return errors.New("not yet")
		}
		return nil
	}, map[string]int{"default": 1})()
	must(client.Enqueue(asynq.NewTask("twice", nil), asynq.MaxRetry(5), asynq.TaskID("twice"), asynq.Retention(time.Hour)))
	must(client.Enqueue(asynq.NewTask("never", nil), asynq.MaxRetry(1), asynq.TaskID("never")))
	state := func(id string) asynq.TaskState { return must(inspector.GetTaskInfo("default", id)).State }
	until("it succeeds", func() bool { return state("twice") == asynq.TaskStateCompleted })
	equal(done.total(), 3)
	until("it is archived", func() bool { return state("never") == asynq.TaskStateArchived })
	equal(must(inspector.GetTaskInfo("default", "never")).LastErr, "not yet")
}

func prioritiesDelaysAndUniqueTasks() {
	client, inspector := asynq.NewClient(connection()), asynq.NewInspector(connection())
	defer client.Close()
	defer inspector.Close()
	task := asynq.NewTask("unique", []byte("one"))
	must(client.Enqueue(task, asynq.Unique(time.Hour), asynq.ProcessIn(50*time.Millisecond)))
	_, err := client.Enqueue(task, asynq.Unique(time.Hour))
	equal(errors.Is(err, asynq.ErrDuplicateTask), true)
	must(client.Enqueue(asynq.NewTask("plain", nil), asynq.Queue("low")))
	must(client.Enqueue(asynq.NewTask("plain", nil), asynq.Queue("high")))
	var order []string
	var lock sync.Mutex
	defer serve(func(ctx context.Context, task *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		lock.Lock()
		defer lock.Unlock()
		order = append(order, queue+" "+task.Type())
		return nil
	}, map[string]int{"high": 3, "low": 2, "default": 1})()
	until("all have run", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(order) == 3
	})
	seen := map[string]bool{}
	for _, one := range order {
		seen[one] = true
	}
	equal(seen, map[string]bool{"high plain": true, "low plain": true, "default unique": true})
	until("the queue is empty", func() bool { return must(inspector.GetQueueInfo("default")).Size == 0 })
	must(client.Enqueue(task, asynq.Unique(time.Hour)))
}

func tasksOfAGroupAreAggregated() {
	client := asynq.NewClient(connection())
	defer client.Close()
	results := make(chan string, 10)
	defer serve(func(_ context.Context, task *asynq.Task) error {
		results <- string(task.Payload())
		return nil
	}, map[string]int{"default": 1})()
	for range 5 {
		must(client.Enqueue(asynq.NewTask("part", nil), asynq.Group("sum")))
	}
	select {
	case result := <-results:
		equal(result, "sum:5")
	case <-time.After(patience):
		panic("no aggregated task")
	}
}

// cache returns a client with a cache, and one without.
func cache(change func(*rueidis.ClientOption)) (rueidis.Client, rueidis.Client) {
	options := rueidis.ClientOption{InitAddress: []string{os.Getenv("ADDR")}, ConnWriteTimeout: patience}
	options.Dialer.Timeout = patience
	plain := options
	plain.DisableCache = true
	if change != nil {
		change(&options)
	}
	return must(rueidis.NewClient(options)), must(rueidis.NewClient(plain))
}

func get(client rueidis.Client, key string) (string, bool) {
	result := client.DoCache(ctx, client.B().Get().Key(key).Cache(), cacheTTL)
	text, err := result.ToString()
	if !rueidis.IsRedisNil(err) {
		check(err)
	}
	return text, result.IsCacheHit()
}

// becomes waits for the message that removes an old value from the cache.
func becomes(client rueidis.Client, key, wanted string) {
	until(key+" is "+wanted, func() bool { text, _ := get(client, key); return text == wanted })
}

func aCachedValueIsInvalidated() {
	caching, writer := cache(nil)
	defer caching.Close()
	defer writer.Close()
	set := func(value string) { check(writer.Do(ctx, writer.B().Set().Key("k").Value(value).Build()).Error()) }
	set("1")
	text, isHit := get(caching, "k")
	equal([]any{text, isHit}, []any{"1", false})
	text, isHit = get(caching, "k")
	equal([]any{text, isHit}, []any{"1", true})
	set("2")
	becomes(caching, "k", "2")
	check(writer.Do(ctx, writer.B().Del().Key("k").Build()).Error())
	becomes(caching, "k", "")
	set("3")
	becomes(caching, "k", "3")
	check(writer.Do(ctx, writer.B().Pexpire().Key("k").Milliseconds(1).Build()).Error())
	becomes(caching, "k", "")
	set("4")
	becomes(caching, "k", "4")
	check(writer.Do(ctx, writer.B().Flushall().Build()).Error())
	becomes(caching, "k", "")
}

func manyKeysAndAllWaysOfWriting() {
	caching, writer := cache(nil)
	defer caching.Close()
	defer writer.Close()
	key := func(number int) string { return "k" + strconv.Itoa(number) }
	set := func(number int, value string) rueidis.Completed {
		return writer.B().Set().Key(key(number)).Value(value).Build()
	}
	for number := range cached {
		check(writer.Do(ctx, set(number, "old")).Error())
	}
	read := func() []rueidis.RedisResult {
		all := make([]rueidis.CacheableTTL, cached)
		for number := range all {
			all[number] = rueidis.CT(caching.B().Get().Key(key(number)).Cache(), cacheTTL)
		}
		return caching.DoMultiCache(ctx, all...)
	}
	for _, result := range read() {
		equal(must(result.ToString()), "old")
	}
	for _, result := range read() {
		equal(result.IsCacheHit(), true)
	}
	for number := range cached {
		switch number % 3 {
		case 0:
			check(writer.Do(ctx, set(number, "new")).Error())
		case 1:
			multi, exec := writer.B().Multi().Build(), writer.B().Exec().Build()
			for _, result := range writer.DoMulti(ctx, multi, set(number, "new"), exec) {
				check(result.Error())
			}
		default:
			script := writer.B().Eval().Script("return redis.call('SET', KEYS[1], ARGV[1])").Numkeys(1)
			check(writer.Do(ctx, script.Key(key(number)).Arg("new").Build()).Error())
		}
	}
	until("all are new", func() bool {
		for _, result := range read() {
			if must(result.ToString()) != "new" {
				return false
			}
		}
		return true
	})
}

func broadcastsByPrefix() {
	caching, writer := cache(func(options *rueidis.ClientOption) {
		options.ClientTrackingOptions = []string{"PREFIX", "user:", "BCAST"}
	})
	defer caching.Close()
	defer writer.Close()
	for round := range 20 {
		value := strconv.Itoa(round)
		check(writer.Do(ctx, writer.B().Hset().Key("user:1").FieldValue().FieldValue("name", value).Build()).Error())
		until("the name is "+value, func() bool {
			result := caching.DoCache(ctx, caching.B().Hget().Key("user:1").Field("name").Cache(), cacheTTL)
			return must(result.ToString()) == value
		})
	}
}

func main() {
	all := []struct {
		name string
		body func()
	}{
		{"asynq: every task is run once", everyTaskIsRunOnce},
		{"asynq: a failed task is tried again, and archived", aFailedTaskIsTriedAgainAndArchived},
		{"asynq: priorities, delays, unique tasks", prioritiesDelaysAndUniqueTasks},
		{"asynq: tasks of a group are aggregated", tasksOfAGroupAreAggregated},
		{"rueidis: a cached value is invalidated", aCachedValueIsInvalidated},
		{"rueidis: many keys, all ways of writing", manyKeysAndAllWaysOfWriting},
		{"rueidis: broadcasts by prefix", broadcastsByPrefix},
	}
	passed, failed := 0, 0
	for _, test := range all {
		started := time.Now()
		if run(test.name, test.body) {
			passed++
			fmt.Printf("ok %s (%d ms)\n", test.name, time.Since(started).Milliseconds())
		} else {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// run returns whether a test passes on an empty server, and empties it.
func run(name string, body func()) (passed bool) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("FAILED %s: %v\n%s\n", name, problem, debug.Stack())
			passed = false
		}
	}()
	_, writer := cache(nil)
	defer writer.Close()
	check(writer.Do(ctx, writer.B().Flushall().Build()).Error())
	body()
	check(writer.Do(ctx, writer.B().Flushall().Build()).Error())
	return true
}
