import { type Expression, type SqlBool, sql } from 'kysely';
import type { Labels } from '../../core/instance.ts';

/** Returns the labels as the column holds them: one JSON pair a line, between newlines. */
export function labelColumn(labels: Labels = {}): string {
  const lines = Object.entries(labels).map(pair => `${JSON.stringify(pair)}\n`);
  return lines.length === 0 ? '' : `\n${lines.join('')}`;
}

/** Matches agents that have all of the labels. */
export function hasLabels(labels: Labels): Expression<SqlBool>[] {
  // Removing a line changes the column only if it has the line. Both databases compare so byte by byte.
  return Object.entries(labels).map(
    pair => sql<SqlBool>`replace(labels, ${`\n${JSON.stringify(pair)}\n`}, '') <> labels`,
  );
}
