// What the suites for Node have in common: tests register themselves, are run one by one, and are counted.

const tests = [];

export function test(name, body) {
  tests.push({ name, body });
}

/** Runs each test, and ends the process. */
export async function run() {
  let passed = 0;
  let failed = 0;
  for (const { name, body } of tests) {
    try {
      await body();
      passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
