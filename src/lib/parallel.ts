/** Runs `work` for every item, at most `parallel` at once. `work` does not reject. */
export async function forEachOf<T>(
  items: Iterable<T>,
  parallel: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const lane = async () => {
    for (let next = iterator.next(); !next.done; next = iterator.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: parallel }, lane));
}
