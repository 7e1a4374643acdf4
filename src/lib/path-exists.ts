import { access } from 'node:fs';

/** Whether a path of this host is there. */
export type PathExists = (path: string) => Promise<boolean>;

/**
 * Asks the file system for each path once per turn of the event loop, however many ask: a question costs a hop to another thread,
 * and a dead network mount must not stop the loop. The answer is never older than the question.
 */
export function createPathExists(): PathExists {
  let asked = new Map<string, Promise<boolean>>();

  const ask = (path: string) =>
    new Promise<boolean>(resolve => {
      setImmediate(() => {
        // The first to run ends the turn: who asks from now on asks anew.
        asked = new Map();
        access(path, error => resolve(error === null));
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
