/** Whether a path of this host is there, and may be used. */
export type PathExists = (path: string) => Promise<boolean>;

/**
 * Asks `look` for each path once per turn of the event loop, however many ask: a question costs a hop to another thread,
 * and a dead network mount must not stop the loop. The answer is never older than the question.
 */
export function createPathExists(look: PathExists): PathExists {
  let asked = new Map<string, Promise<boolean>>();

  const ask = (path: string) =>
    new Promise<boolean>((resolve, reject) => {
      setImmediate(() => {
        // The first to run ends the turn: who asks from now on asks anew.
        asked = new Map();
        look(path).then(resolve, reject);
      });
    });

  return path => {
    let answer = asked.get(path);
    if (answer === undefined) {
      answer = ask(path);
      asked.set(path, answer);
    }
    return answer;
  };
}
