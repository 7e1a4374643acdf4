import { type Interpreter, Interpreters } from '../src/sandbox/host/interpreters.ts';

const OLDEST_MINOR = 6;
const NEWEST_MINOR = 14;

/** Returns every supported Python that the service finds on this machine, oldest first. */
export async function findInterpreters(): Promise<readonly Interpreter[]> {
  const interpreters = new Interpreters({}, process.env);
  const minors = Array.from({ length: NEWEST_MINOR - OLDEST_MINOR + 1 }, (_, index) => OLDEST_MINOR + index);
  const searches = await Promise.allSettled(minors.map(minor => interpreters.find(`3.${minor}`)));
  return searches.flatMap(search => (search.status === 'fulfilled' ? [search.value] : []));
}
