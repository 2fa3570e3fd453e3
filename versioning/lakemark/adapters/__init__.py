"""The world behind the ports: one vendor per module, and nowhere else. Only `site` names these modules."""
