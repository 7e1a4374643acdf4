/**
 * Runs `work` for every item, at most `parallel` at once. Rejects when one rejects, and then starts no
 * further one.
 */
export async function forEachOf<T>(
  items: Iterable<T>,
  parallel: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let hasFailed = false;
  const runner = async () => {
    try {
      for (let next = iterator.next(); !next.done && !hasFailed; next = iterator.next()) await work(next.value);
    } catch (error) {
      hasFailed = true;
      throw error;
    }
  };
  await Promise.all(Array.from({ length: parallel }, runner));
}
